-- Items of a window that have a key, as they were submitted or as they were corrected. Index: item_pkey, item_fix_pkey.
SELECT seq FROM tidemill.item
WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s AND tidemill.has_key(input, %(key)s)
UNION
SELECT seq FROM tidemill.item_fix
WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s AND tidemill.has_key(input, %(key)s)
ORDER BY seq

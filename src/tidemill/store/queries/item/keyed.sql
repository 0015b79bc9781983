-- List the items of a window that have a key in their submitted or their fixed input. Index: item_pkey, item_fix_pkey.
SELECT seq FROM tidemill.item
WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s AND tidemill.has_key(input, %(key)s)
UNION
SELECT seq FROM tidemill.item_fix
WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s AND tidemill.has_key(input, %(key)s)
ORDER BY seq

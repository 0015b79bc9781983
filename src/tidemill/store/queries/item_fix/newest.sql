-- Return the newest fixes of a range of items, exactly as stored. Index: item_fix_pkey.
SELECT DISTINCT ON (seq) seq, convert_to(input::text, 'UTF8') FROM tidemill.item_fix
WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s ORDER BY seq, rev DESC

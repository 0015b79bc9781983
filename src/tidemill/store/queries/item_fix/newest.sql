-- The newest corrections of a range of items, as they are stored. Index: item_fix_pkey.
SELECT DISTINCT ON (seq) seq, convert_to(input::text, 'UTF8') FROM tidemill.item_fix
WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s ORDER BY seq, rev DESC

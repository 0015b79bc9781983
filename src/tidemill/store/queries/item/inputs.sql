-- Return inputs exactly as stored. Index: item_pkey.
SELECT convert_to(input::text, 'UTF8') FROM tidemill.item
WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s ORDER BY seq

-- The inputs of the first items that could be parsed. Index: item_pkey.
SELECT input::text FROM tidemill.item
WHERE job_id = %(job_id)s AND seq < %(most)s AND defect IS NULL ORDER BY seq

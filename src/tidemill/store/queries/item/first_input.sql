-- The first input of a job that could be read: its keys are the columns of a job without results. Index: item_pkey.
SELECT input::text FROM tidemill.item WHERE job_id = %(job_id)s AND seq < 100 AND defect IS NULL ORDER BY seq LIMIT 1

-- Return all items of a job with their outcomes. Index: the primary key of item.
SELECT seq, status, error->>'code' AS code, result FROM tidemill.item_status WHERE job_id = %(job_id)s ORDER BY seq

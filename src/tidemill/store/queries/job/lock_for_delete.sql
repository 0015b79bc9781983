-- The strongest lock: the row is about to go.
SELECT id FROM tidemill.job WHERE id = %(job_id)s FOR UPDATE

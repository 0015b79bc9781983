-- Lock a job that is about to be deleted, with the strongest lock.
SELECT id FROM tidemill.job WHERE id = %(job_id)s FOR UPDATE

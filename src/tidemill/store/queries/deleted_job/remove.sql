-- Forget a deleted job whose rows are all deleted.
DELETE FROM tidemill.deleted_job WHERE job_id = %(job_id)s

-- Nothing of the job is left.
DELETE FROM tidemill.deleted_job WHERE job_id = %(job_id)s

-- Delete the job's row: the last step of a delete.
DELETE FROM tidemill.job WHERE id = %(job_id)s

-- The job's row itself, last of a delete.
DELETE FROM tidemill.job WHERE id = %(job_id)s

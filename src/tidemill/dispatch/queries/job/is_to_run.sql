-- Whether a job exists, is open and may run. Index: job_pkey.
SELECT closed_as IS NULL AND intent = 'run' FROM tidemill.job WHERE id = %(job_id)s

-- Return the parameters of a job. Index: job_pkey.
SELECT params FROM tidemill.job WHERE id = %(job_id)s

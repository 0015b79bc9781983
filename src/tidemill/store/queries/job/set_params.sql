-- Set the parameters of a job, extended by facts from its source. Index: job_pkey.
UPDATE tidemill.job SET params = %(params)s WHERE id = %(job_id)s

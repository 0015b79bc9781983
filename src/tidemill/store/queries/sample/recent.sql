-- The newest samples of a job. Index: job_sample_pkey backwards.
SELECT at, settled, failed FROM tidemill.job_sample WHERE job_id = %(job_id)s ORDER BY at DESC LIMIT %(limit)s

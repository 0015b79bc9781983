-- The columns of a job's results, as far as they are known. Index: job_pkey.
SELECT result_columns FROM tidemill.job WHERE id = %(job_id)s

-- Return the result columns of a job that are known so far. Index: job_pkey.
SELECT result_columns FROM tidemill.job WHERE id = %(job_id)s

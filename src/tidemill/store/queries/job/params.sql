-- What a job was asked to do. Index: job_pkey.
SELECT params FROM tidemill.job WHERE id = %(job_id)s

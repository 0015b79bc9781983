-- Delete the samples of a deleted job. Index: job_sample_pkey.
DELETE FROM tidemill.job_sample WHERE job_id = %(job_id)s

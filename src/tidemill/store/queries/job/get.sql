-- Return one job with its counts. Index: job_pkey, batch_unfolded.
SELECT * FROM tidemill.job_progress WHERE id = %(job_id)s

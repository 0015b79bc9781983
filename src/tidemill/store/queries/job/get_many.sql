-- Return some jobs with their counts, newest first. Index: job_pkey, batch_unfolded.
SELECT * FROM tidemill.job_progress WHERE id = ANY(%(ids)s) ORDER BY id DESC

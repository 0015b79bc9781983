-- Record that a job has changed, so that streams report it. Index: job_pkey.
UPDATE tidemill.job SET updated_at = tidemill.now() WHERE id = %(job_id)s

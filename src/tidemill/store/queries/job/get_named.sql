-- Return one job with its counts, by id or key. Index: job_pkey, job_key_key, batch_unfolded.
SELECT * FROM tidemill.job_progress
WHERE id = (SELECT coalesce(%(id)s::uuid, (SELECT k.id FROM tidemill.job k WHERE k.key = %(key)s)))

-- Return the newest ready batch of a job. Index: batch_claim.
SELECT coalesce(max(id), 0) FROM tidemill.batch WHERE job_id = %(job_id)s AND state = 'ready'

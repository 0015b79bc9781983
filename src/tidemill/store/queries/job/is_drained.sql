-- Whether nothing of a job is open. Run after the lock of the job, as a statement of its own: together with
-- it, the check would look through a snapshot older than the lock. Index: batch_claim, batch_turning.
SELECT NOT EXISTS (SELECT 1 FROM tidemill.batch WHERE job_id = %(job_id)s AND state = 'ready')
   AND NOT EXISTS (SELECT 1 FROM tidemill.batch WHERE job_id = %(job_id)s AND state = 'leased') AS drained

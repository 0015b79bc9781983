-- The next due batch of a job, locked unless somebody else holds it. Index: batch_claim.
SELECT id AS batch_id, job_id, owner_id, kind, lo, hi, seqs, open, flush_no, isolated, crashes, losses, retrying,
    (SELECT sparse FROM tidemill.job WHERE id = %(job_id)s) AS sparse
FROM tidemill.batch
WHERE job_id = %(job_id)s AND state = 'ready' AND not_before <= tidemill.now()
  AND EXISTS (SELECT 1 FROM tidemill.job WHERE id = %(job_id)s AND intent = 'run' AND closed_as IS NULL)
ORDER BY not_before, id LIMIT 1 FOR UPDATE SKIP LOCKED

-- List further due lists of a job that may be merged into the list being claimed. Index: batch_claim.
SELECT id, seqs FROM tidemill.batch
WHERE job_id = %(job_id)s AND state = 'ready' AND not_before <= tidemill.now() AND seqs IS NOT NULL
  AND NOT isolated AND NOT half AND retrying = %(retrying)s AND id <> %(batch_id)s AND crashes = 0
ORDER BY not_before, id LIMIT 64 FOR UPDATE SKIP LOCKED

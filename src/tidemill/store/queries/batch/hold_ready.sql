-- List ready batches of a job, oldest first, and lock them until the transaction ends, so that claims skip them.
-- Batches created after `until` are excluded. Index: batch_claim.
SELECT id, lo, hi, seqs, open FROM tidemill.batch
WHERE job_id = %(job_id)s AND state = 'ready' AND id > %(after)s AND id <= %(until)s AND retrying = ANY(%(retrying)s)
  AND hi > %(first)s AND lo <= %(last)s
ORDER BY id LIMIT %(limit)s FOR UPDATE

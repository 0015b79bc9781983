-- Cancelled ranges of a job that reach into a stretch, in order, held until the end of the transaction.
-- Index: batch_cover.
SELECT id, lo, hi FROM tidemill.batch
WHERE job_id = %(job_id)s AND seqs IS NULL AND state = 'cancelled' AND cancelled > 0
  AND hi > %(first)s AND lo <= %(last)s
ORDER BY hi FOR UPDATE

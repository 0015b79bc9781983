-- List the cancelled ranges of a job that overlap a span of items, in order, and lock them until the transaction ends.
-- Index: batch_cover.
SELECT id, lo, hi FROM tidemill.batch
WHERE job_id = %(job_id)s AND seqs IS NULL AND state = 'cancelled' AND cancelled > 0
  AND hi > %(first)s AND lo <= %(last)s
ORDER BY hi FOR UPDATE

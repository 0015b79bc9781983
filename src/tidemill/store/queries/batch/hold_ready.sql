-- Some ready batches of a job, oldest first, held until the end of the transaction: whoever claims goes past them.
-- Those that were made after `until` are not meant. Index: batch_claim.
SELECT id, lo, hi, seqs, open FROM tidemill.batch
WHERE job_id = %(job_id)s AND state = 'ready' AND id > %(after)s AND id <= %(until)s AND retrying = ANY(%(retrying)s)
  AND hi > %(first)s AND lo <= %(last)s
ORDER BY id LIMIT %(limit)s FOR UPDATE

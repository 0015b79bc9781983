-- List the cancelled ranges of a job after a seq, in order of seq. Index: batch_cover.
SELECT id, lo, cancelled AS items, hi - lo AS width FROM tidemill.batch
WHERE job_id = %(job_id)s AND seqs IS NULL AND state = 'cancelled' AND hi > %(after_seq)s::bigint + 1
ORDER BY hi LIMIT %(limit)s

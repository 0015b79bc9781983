-- A job's exceptions of one status, oldest change first. Index: outcome_exception.
SELECT o.seq, o.status, o.attempts, o.updated_at, o.result, o.error, o.duration_ms, i.input
FROM tidemill.outcome o JOIN tidemill.item i ON i.job_id = o.job_id AND i.seq = o.seq
WHERE o.job_id = %(job_id)s AND o.status = %(status)s
  AND (o.updated_at, o.seq) > (%(after_at)s, %(after_seq)s)
ORDER BY o.updated_at, o.seq LIMIT %(limit)s

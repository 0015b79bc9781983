-- A window of a job's items in order of seq, each with its derived status. Index: item_pkey, outcome_pkey,
-- batch_cover, batch_turning.
SELECT s.seq, s.status, s.attempts, s.updated_at, s.result, s.error, s.duration_ms, s.input, s.locked_by AS worker
FROM tidemill.item_status s
WHERE s.job_id = %(job_id)s AND s.seq > %(after_seq)s::bigint AND s.seq <= %(after_seq)s::bigint + %(window)s::bigint
  AND (%(status)s::text IS NULL OR s.status = %(status)s)
ORDER BY s.seq LIMIT %(limit)s

-- A window of a job's items in order, settled ones with their outcome. Index: item_pkey, outcome_pkey.
SELECT i.seq, o.status, coalesce(o.attempts, 0) AS attempts, coalesce(o.updated_at, i.at) AS updated_at,
    o.result, o.error, o.duration_ms, i.input
FROM tidemill.item i LEFT JOIN tidemill.outcome o ON o.job_id = i.job_id AND o.seq = i.seq
WHERE i.job_id = %(job_id)s AND i.seq > %(after_seq)s AND i.seq <= %(after_seq)s + %(window)s
  AND (%(status)s::text IS NULL OR o.status = %(status)s OR (o.status IS NULL AND %(sparse_done)s))
ORDER BY i.seq LIMIT %(limit)s

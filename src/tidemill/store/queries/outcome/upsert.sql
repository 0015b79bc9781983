-- Write outcomes of items of a list, which already have one. Ascending seq prevents deadlocks between writers. Index:
-- outcome_pkey.
INSERT INTO tidemill.outcome (job_id, seq, owner_id, status, attempts, updated_at, result, normalized, error, duration_ms)
SELECT %(job_id)s, u.seq, %(owner_id)s, u.status, u.attempts, %(at)s, u.result, u.normalized, u.error, u.duration_ms
FROM unnest(%(seqs)s::bigint[], %(statuses)s::text[], %(attempts)s::smallint[], %(results)s::jsonb[],
    %(normalized)s::jsonb[], %(errors)s::json[], %(durations)s::integer[])
    AS u(seq, status, attempts, result, normalized, error, duration_ms)
ORDER BY u.seq
ON CONFLICT (job_id, seq) DO UPDATE SET status = excluded.status, attempts = excluded.attempts,
    updated_at = greatest(excluded.updated_at, outcome.updated_at), result = excluded.result,
    normalized = excluded.normalized, error = excluded.error, duration_ms = excluded.duration_ms

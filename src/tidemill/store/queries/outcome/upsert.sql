-- Write outcomes of items of a list, which already have one. Ascending seq prevents deadlocks between writers. The details
-- of an outcome keep its last 20 attempts; without new details, only the exception of the previous attempt is removed.
-- Index: outcome_pkey.
INSERT INTO tidemill.outcome (job_id, seq, owner_id, status, attempts, updated_at, result, normalized, error, duration_ms,
    details)
SELECT %(job_id)s, u.seq, %(owner_id)s, u.status, u.attempts, %(at)s, u.result, u.normalized, u.error, u.duration_ms,
    u.details
FROM unnest(%(seqs)s::bigint[], %(statuses)s::text[], %(attempts)s::smallint[], %(results)s::jsonb[],
    %(normalized)s::jsonb[], %(errors)s::json[], %(durations)s::integer[], %(details)s::jsonb[])
    AS u(seq, status, attempts, result, normalized, error, duration_ms, details)
ORDER BY u.seq
ON CONFLICT (job_id, seq) DO UPDATE SET status = excluded.status, attempts = excluded.attempts,
    updated_at = greatest(excluded.updated_at, outcome.updated_at), result = excluded.result,
    normalized = excluded.normalized, error = excluded.error, duration_ms = excluded.duration_ms,
    details = CASE
        WHEN excluded.details IS NULL THEN outcome.details - '{type,traceback}'::text[]
        WHEN outcome.details IS NULL THEN excluded.details
        ELSE jsonb_set(excluded.details, '{attempts}', CASE
            WHEN jsonb_array_length(outcome.details->'attempts') < 20 THEN outcome.details->'attempts'
            ELSE (outcome.details->'attempts') - 0 END || (excluded.details->'attempts'))
    END

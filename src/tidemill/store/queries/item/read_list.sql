-- The first items of a list, up to so many bytes, with the number of their attempt, their newest correction, how often
-- they were throttled since the last one and missed before. What is left out goes back with the rest of the batch.
-- Index: item_pkey, outcome_pkey, item_fix_pkey.
SELECT seq, input, attempt, defect, throttles, misses FROM (
    SELECT i.seq, coalesce(f.input, i.input) AS input, (o.attempts + 1)::smallint AS attempt,
        CASE WHEN f.input IS NULL THEN i.defect END AS defect,
        CASE WHEN o.status = 'retry_wait' THEN coalesce((o.error->>'throttles')::integer, 0) ELSE 0 END AS throttles,
        CASE WHEN o.status = 'retry_wait' THEN coalesce((o.error->>'misses')::integer, 0) ELSE 0 END AS misses,
        sum(pg_column_size(i.input)) OVER (ORDER BY s.seq) AS bytes, row_number() OVER (ORDER BY s.seq) AS n
    FROM unnest(%(seqs)s::bigint[]) AS s(seq)
    -- LIMIT: or a planner that has not heard of a new job yet goes through all of its items for a list of a few.
    CROSS JOIN LATERAL (SELECT i.seq, i.input, i.defect FROM tidemill.item i
                        WHERE i.job_id = %(job_id)s AND i.seq = s.seq LIMIT 1) i
    CROSS JOIN LATERAL (SELECT o.attempts, o.status, o.error FROM tidemill.outcome o
                        WHERE o.job_id = %(job_id)s AND o.seq = s.seq LIMIT 1) o
    LEFT JOIN LATERAL (SELECT f.input FROM tidemill.item_fix f WHERE f.job_id = %(job_id)s AND f.seq = s.seq
                       ORDER BY f.rev DESC LIMIT 1) f ON true
) read
WHERE n = 1 OR bytes <= %(bytes)s
ORDER BY seq

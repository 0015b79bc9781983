-- Return the first items of a list, up to a number of bytes, with their attempt number, newest fix, the number of
-- throttled calls since the last counted attempt, and the number of not_found attempts. The worker releases the other
-- items with the rest of the batch. Index: item_pkey, outcome_pkey, item_fix_pkey.
SELECT seq, input, attempt, defect, throttles, misses FROM (
    SELECT i.seq, coalesce(f.input, i.input) AS input, (o.attempts + 1)::smallint AS attempt,
        CASE WHEN f.input IS NULL THEN i.defect END AS defect,
        CASE WHEN o.status = 'retry_wait' THEN coalesce((o.error->>'throttles')::integer, 0) ELSE 0 END AS throttles,
        CASE WHEN o.status = 'retry_wait' THEN coalesce((o.error->>'misses')::integer, 0) ELSE 0 END AS misses,
        sum(pg_column_size(i.input)) OVER (ORDER BY s.seq) AS bytes, row_number() OVER (ORDER BY s.seq) AS n
    FROM unnest(%(seqs)s::bigint[]) AS s(seq)
    -- LIMIT 1 keeps a planner without statistics on a new job from scanning all items of the job.
    CROSS JOIN LATERAL (SELECT i.seq, i.input, i.defect FROM tidemill.item i
                        WHERE i.job_id = %(job_id)s AND i.seq = s.seq LIMIT 1) i
    CROSS JOIN LATERAL (SELECT o.attempts, o.status, o.error FROM tidemill.outcome o
                        WHERE o.job_id = %(job_id)s AND o.seq = s.seq LIMIT 1) o
    LEFT JOIN LATERAL (SELECT f.input FROM tidemill.item_fix f WHERE f.job_id = %(job_id)s AND f.seq = s.seq
                       ORDER BY f.rev DESC LIMIT 1) f ON true
) read
WHERE n = 1 OR bytes <= %(bytes)s
ORDER BY seq

-- List the open items of some batches, ordered by the time their batch became ready or leased, then by batch and seq.
-- The index alone finds the seqs of a range without an outcome; item rows are read only for the page. The first and the
-- last job id let the planner skip partitions. Index: batch_pkey, outcome_pkey, item_pkey, item_fix_pkey.
SELECT p.job_id, p.seq, p.job_id || ':' || p.seq AS id, p.status, coalesce(o.attempts, 0) AS attempts,
    CASE p.status WHEN 'processing' THEN p.worker END AS locked_by,
    CASE p.status WHEN 'processing' THEN p.since END AS locked_at, p.since AS updated_at,
    CASE p.status WHEN 'retry_wait' THEN p.not_before END AS due_at,
    p.not_before <= (SELECT tidemill.now()) AND NOT tidemill.waits_for_source(p.job_id) AS is_due,
    tidemill.shown(o.result) AS result, o.result IS NOT NULL AND tidemill.shown(o.result) IS NULL AS result_cut,
    o.error, o.duration_ms, f.rev, s.summary AS input_summary, p.batch_id
FROM (
    SELECT b.id AS batch_id, b.job_id, b.since, b.worker, b.not_before, b.seqs IS NOT NULL AS is_list, x.seq,
        CASE WHEN b.state = 'leased' THEN 'processing' WHEN b.retrying THEN 'retry_wait' ELSE 'pending' END AS status
    FROM unnest(%(batches)s::bigint[]) AS asked(id)
    -- LIMIT 1 keeps the planner from scanning an entire index in this order to avoid sorting a few rows.
    CROSS JOIN LATERAL (SELECT * FROM tidemill.batch b WHERE b.id = asked.id LIMIT 1) b
    CROSS JOIN LATERAL (
        (SELECT n.seq FROM generate_series(
             CASE WHEN b.id = %(batch)s THEN greatest(b.lo, %(seq)s::bigint + 1) ELSE b.lo END, b.hi - 1) AS n(seq)
         WHERE b.seqs IS NULL
           AND NOT EXISTS (SELECT 1 FROM tidemill.outcome o
                           WHERE o.job_id = b.job_id AND o.seq = n.seq AND o.seq >= b.lo AND o.seq < b.hi
                             AND o.job_id BETWEEN %(first_job)s AND %(last_job)s)
         ORDER BY n.seq LIMIT %(limit)s)
        UNION ALL
        (SELECT s.seq FROM unnest(b.seqs) AS s(seq) WHERE b.id <> %(batch)s OR s.seq > %(seq)s
         ORDER BY s.seq LIMIT %(limit)s)
    ) x
    ORDER BY b.since, b.id, x.seq LIMIT %(limit)s
) p
CROSS JOIN LATERAL (
    SELECT i.input FROM tidemill.item i
    WHERE i.job_id = p.job_id AND i.seq = p.seq AND i.job_id BETWEEN %(first_job)s AND %(last_job)s LIMIT 1
) i
LEFT JOIN LATERAL (
    SELECT o.attempts, o.result, o.error, o.duration_ms FROM tidemill.outcome o
    WHERE p.is_list AND o.job_id = p.job_id AND o.seq = p.seq AND o.job_id BETWEEN %(first_job)s AND %(last_job)s LIMIT 1
) o ON true
LEFT JOIN LATERAL (
    SELECT f.rev, f.input FROM tidemill.item_fix f
    WHERE p.is_list AND f.job_id = p.job_id AND f.seq = p.seq ORDER BY f.rev DESC LIMIT 1
) f ON true
CROSS JOIN LATERAL tidemill.summed_up(coalesce(f.input, i.input)) s
ORDER BY p.since, p.batch_id, p.seq

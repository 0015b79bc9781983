-- List the items of cancelled ranges that were never attempted, in order of seq. The index alone finds items without an
-- outcome; item rows are read only for the page. Index: batch_pkey, outcome_pkey, item_pkey.
SELECT p.seq, p.job_id || ':' || p.seq AS id, 'cancelled' AS status, 0 AS attempts,
    NULL AS locked_by, NULL::timestamptz AS locked_at, p.updated_at, NULL::timestamptz AS due_at, NULL::jsonb AS result,
    false AS result_cut, NULL::json AS error, NULL::integer AS duration_ms, NULL::integer AS rev,
    s.summary AS input_summary
FROM (
    SELECT b.job_id, x.seq, greatest(b.since, b.closed_at) AS updated_at FROM unnest(%(batches)s::bigint[]) AS asked(id)
    -- LIMIT 1 keeps the planner from scanning an entire index in this order to avoid sorting a few rows.
    CROSS JOIN LATERAL (SELECT * FROM tidemill.batch b WHERE b.id = asked.id LIMIT 1) b
    CROSS JOIN LATERAL (
        SELECT n.seq FROM generate_series(greatest(b.lo, %(after_seq)s::bigint + 1), b.hi - 1) AS n(seq)
        WHERE NOT EXISTS (SELECT 1 FROM tidemill.outcome o
                          WHERE o.job_id = b.job_id AND o.seq = n.seq AND o.seq >= b.lo AND o.seq < b.hi)
        ORDER BY n.seq LIMIT %(limit)s
    ) x
    ORDER BY x.seq LIMIT %(limit)s
) p
CROSS JOIN LATERAL (SELECT i.input FROM tidemill.item i WHERE i.job_id = p.job_id AND i.seq = p.seq LIMIT 1) i
CROSS JOIN LATERAL tidemill.summed_up(i.input) s
ORDER BY p.seq

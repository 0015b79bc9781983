-- List the exceptions of a job with some statuses, oldest change first: one index range for each status, merged. Index:
-- outcome_exception, item_pkey, item_fix_pkey.
SELECT p.seq, p.job_id || ':' || p.seq AS id, p.status, p.attempts, NULL AS locked_by,
    NULL::timestamptz AS locked_at, p.updated_at, NULL::timestamptz AS due_at, tidemill.shown(p.result) AS result,
    p.result IS NOT NULL AND tidemill.shown(p.result) IS NULL AS result_cut, p.error, p.duration_ms, f.rev,
    s.summary AS input_summary
FROM (
    SELECT o.*, i.input FROM (
        SELECT o.* FROM unnest(%(statuses)s::text[]) AS asked(status)
        CROSS JOIN LATERAL (
            SELECT * FROM tidemill.outcome o
            WHERE o.job_id = %(job_id)s AND o.status = asked.status AND o.status <> 'done'
              AND (o.updated_at, o.seq) > (%(at)s, %(seq)s)
            ORDER BY o.updated_at, o.seq LIMIT %(limit)s
        ) o
        ORDER BY o.updated_at, o.seq LIMIT %(limit)s
    ) o
    CROSS JOIN LATERAL (
        SELECT i.input FROM tidemill.item i WHERE i.job_id = %(job_id)s AND i.seq = o.seq LIMIT 1
    ) i
) p
LEFT JOIN LATERAL (
    SELECT f.rev, f.input FROM tidemill.item_fix f WHERE f.job_id = p.job_id AND f.seq = p.seq ORDER BY f.rev DESC LIMIT 1
) f ON true
CROSS JOIN LATERAL tidemill.summed_up(coalesce(f.input, p.input)) s
ORDER BY p.updated_at, p.seq

-- List the failures of a job with some error codes, oldest change first. Reads at most `budget` failures; the failure
-- after these marks the end of the scan (is_end). Index: outcome_exception, item_pkey, item_fix_pkey.
SELECT p.seq, p.job_id || ':' || p.seq AS id, p.status, p.attempts, NULL AS locked_by,
    NULL::timestamptz AS locked_at, p.updated_at, NULL::timestamptz AS due_at, tidemill.shown(p.result) AS result,
    p.result IS NOT NULL AND tidemill.shown(p.result) IS NULL AS result_cut, p.error, p.duration_ms, f.rev,
    s.summary AS input_summary, p.is_end
FROM (
    SELECT o.*, i.input, o.n > %(budget)s AS is_end FROM (
        SELECT * FROM (
            SELECT *, row_number() OVER (ORDER BY updated_at, seq) AS n FROM (
                SELECT * FROM tidemill.outcome
                WHERE job_id = %(job_id)s AND status = 'failed' AND (updated_at, seq) > (%(at)s, %(seq)s)
                ORDER BY updated_at, seq LIMIT %(budget)s + 1
            ) seen
        ) numbered
        WHERE n > %(budget)s OR error->>'code' = ANY(%(codes)s)
        ORDER BY updated_at, seq LIMIT %(limit)s
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

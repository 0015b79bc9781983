-- 5. The counters of failures per error code, and per code of their further errors, equal the number of rows.
SELECT p.id AS job_id, p.codes, c.codes AS rows, f.counted AS further_codes, f.rows AS further_rows
FROM tidemill.job_progress p
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_object_agg(code, n), '{}') AS codes FROM (
        SELECT error->>'code' AS code, count(*) AS n FROM tidemill.outcome
        WHERE job_id = p.id AND status = 'failed' AND error->>'code' IS NOT NULL GROUP BY 1) s
) c
CROSS JOIN LATERAL (
    SELECT (SELECT tidemill.sum_codes(part.further_codes) FROM (
            SELECT further_codes FROM tidemill.job_tally WHERE job_id = p.id
            UNION ALL SELECT further_codes FROM tidemill.batch WHERE job_id = p.id AND NOT folded
        ) part) AS counted,
        (SELECT coalesce(jsonb_object_agg(code, n), '{}') FROM (
            SELECT one.code, count(*) AS n FROM tidemill.outcome o
            CROSS JOIN LATERAL unnest(tidemill.further_codes(o.error)) AS one(code)
            WHERE o.job_id = p.id AND o.status = 'failed' GROUP BY 1) s) AS rows
) f
WHERE p.purged_at IS NULL AND (p.codes <> c.codes OR f.counted <> f.rows)
  AND (%(job_id)s::uuid IS NULL OR p.id = %(job_id)s) LIMIT 10

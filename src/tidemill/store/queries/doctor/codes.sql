-- 5. The counters of failures per error code equal the number of rows.
SELECT p.id AS job_id, p.codes, c.codes AS rows FROM tidemill.job_progress p
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_object_agg(code, n), '{}') AS codes FROM (
        SELECT error->>'code' AS code, count(*) AS n FROM tidemill.outcome
        WHERE job_id = p.id AND status = 'failed' AND error->>'code' IS NOT NULL GROUP BY 1) s
) c
WHERE p.purged_at IS NULL AND p.codes <> c.codes AND (%(job_id)s::uuid IS NULL OR p.id = %(job_id)s) LIMIT 10

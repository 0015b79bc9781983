-- Count the items of all owners that were settled and that failed in each recent interval, over open and recently
-- changed jobs, the newest `jobs` of each. Index: job_runnable, job_updated, job_sample_pkey.
WITH clock AS (SELECT tidemill.now() AS now, %(step)s * interval '1 second' AS step, %(points)s AS points),
begins AS (SELECT now - step * points AS at FROM clock),
jobs AS (
    (SELECT id FROM tidemill.job WHERE closed_as IS NULL ORDER BY id DESC LIMIT %(jobs)s)
    UNION
    (SELECT id FROM tidemill.job, begins WHERE updated_at > begins.at ORDER BY updated_at DESC LIMIT %(jobs)s)
)
SELECT begins.at + step * (part.n + 1) AS at, coalesce(sum(s.settled), 0)::bigint AS settled, coalesce(sum(s.failed), 0)::bigint AS failed
FROM clock CROSS JOIN begins CROSS JOIN generate_series(0, points - 1) AS part(n)
LEFT JOIN (
    SELECT floor(extract(epoch FROM seen.at - begins.at) / %(step)s) AS n,
        greatest(0, seen.settled - seen.settled_before) AS settled, greatest(0, seen.failed - seen.failed_before) AS failed
    FROM begins CROSS JOIN jobs CROSS JOIN LATERAL (
        SELECT at, settled, failed, coalesce(lag(settled) OVER w, 0) AS settled_before, coalesce(lag(failed) OVER w, 0) AS failed_before
        FROM (
            SELECT * FROM tidemill.job_sample WHERE job_id = jobs.id AND at > begins.at
            UNION ALL
            (SELECT * FROM tidemill.job_sample WHERE job_id = jobs.id AND at <= begins.at ORDER BY at DESC LIMIT 1)
        ) known WINDOW w AS (ORDER BY at)
    ) seen
    WHERE seen.at > begins.at
) s ON s.n = part.n
GROUP BY begins.at, step, part.n ORDER BY part.n

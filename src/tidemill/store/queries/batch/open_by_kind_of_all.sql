-- Count open items and open jobs by kind, and whether the jobs may run. Jobs whose source is not read completely
-- count even without items. Reads one row per batch and per such job, never per item. Index: batch_open_all,
-- job_runnable, job_pkey.
SELECT j.kind, j.intent = 'run' AS may_run, sum(w.items)::bigint AS items, count(*) AS jobs
FROM (
    SELECT job_id, sum(items) AS items FROM (
        SELECT b.job_id, b.open AS items FROM tidemill.batch b WHERE b.state IN ('ready', 'leased')
        UNION ALL
        SELECT u.id, 0 FROM tidemill.job u WHERE u.closed_as IS NULL AND NOT u.ingest_done
    ) one GROUP BY job_id
) w JOIN tidemill.job j ON j.id = w.job_id GROUP BY 1, 2

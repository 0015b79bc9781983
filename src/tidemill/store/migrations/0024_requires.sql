-- What a worker must declare to run the items of a job, such as 'dataset:prices'. Workers without it leave the job to
-- others. A file of a distribution is reused only if the current version of its dataset generated it; files of earlier
-- versions of Tidemill have no known version and are generated again.
ALTER TABLE tidemill.job ADD COLUMN requires text[] NOT NULL DEFAULT '{}';
ALTER TABLE tidemill.artifact ADD COLUMN dataset_version text;

-- The view has all columns of job, as they are when it is created.
DROP VIEW tidemill.job_progress;
CREATE VIEW tidemill.job_progress AS
SELECT j.*, coalesce(g.next_seq, 0) AS total, b.pending, b.processing, b.retry_wait,
    coalesce(t.done, 0) + b.done AS done, coalesce(t.not_found, 0) + b.not_found AS not_found,
    coalesce(t.skipped, 0) + b.skipped AS skipped, coalesce(t.failed, 0) + b.failed AS failed,
    coalesce(t.cancelled, 0) + b.cancelled AS cancelled, coalesce(t.retried, 0) + b.retried AS retried,
    coalesce(CASE WHEN NOT b.has_codes THEN t.codes ELSE (
        SELECT jsonb_object_agg(code, n) FROM (
            SELECT one.key AS code, sum(one.value::bigint) AS n FROM (
                SELECT codes FROM tidemill.batch WHERE job_id = j.id AND NOT folded AND codes IS NOT NULL
                UNION ALL SELECT t.codes
            ) part CROSS JOIN LATERAL jsonb_each_text(part.codes) AS one
            GROUP BY one.key HAVING sum(one.value::bigint) <> 0
        ) summed
    ) END, '{}') AS codes,
    least(t.started_at, g.started_at, b.started_at) AS started_at, coalesce(t.idle_s, 0) AS idle_s
FROM tidemill.job j
LEFT JOIN tidemill.ingest g ON g.job_id = j.id
LEFT JOIN tidemill.job_tally t ON t.job_id = j.id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(open) FILTER (WHERE state = 'ready' AND NOT retrying), 0)::bigint AS pending,
        coalesce(sum(open) FILTER (WHERE state = 'leased'), 0)::bigint AS processing,
        coalesce(sum(open) FILTER (WHERE state = 'ready' AND retrying), 0)::bigint AS retry_wait,
        coalesce(sum(done), 0)::bigint AS done, coalesce(sum(not_found), 0)::bigint AS not_found,
        coalesce(sum(skipped), 0)::bigint AS skipped, coalesce(sum(failed), 0)::bigint AS failed,
        coalesce(sum(cancelled), 0)::bigint AS cancelled, coalesce(sum(retried), 0)::bigint AS retried,
        coalesce(bool_or(codes IS NOT NULL), false) AS has_codes,
        min(since) FILTER (WHERE state IN ('leased', 'done')) AS started_at
    FROM tidemill.batch WHERE job_id = j.id AND NOT folded
) b;

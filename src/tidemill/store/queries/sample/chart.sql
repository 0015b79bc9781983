-- Return the progress of a job as at most `points` points, starting at its submission: the last sample of each
-- interval, with the items settled per second since the previous point. Index: job_sample_pkey, job_pkey.
WITH samples AS (
    SELECT created_at AS at, 0::bigint AS settled, 0::bigint AS failed FROM tidemill.job WHERE id = %(job_id)s
    UNION ALL
    SELECT at, settled, failed FROM tidemill.job_sample WHERE job_id = %(job_id)s
), points AS (
    SELECT DISTINCT ON (stretch) at, settled, failed
    FROM (
        SELECT at, settled, failed,
            ceil(extract(epoch FROM at - min(at) OVER ()) * (%(points)s - 1)
                / nullif(extract(epoch FROM max(at) OVER () - min(at) OVER ()), 0)) AS stretch
        FROM samples
    ) placed
    ORDER BY stretch, at DESC
)
SELECT at, settled, failed,
    greatest(settled - lag(settled) OVER w, 0)::float8
        / nullif(extract(epoch FROM at - lag(at) OVER w), 0)::float8 AS per_s
FROM points WINDOW w AS (ORDER BY at) ORDER BY at

-- What is open, summed over batches and never over items; and since when the batch that is longest due waits, of jobs
-- that are to run. Index: batch_open_all, job_runnable.
SELECT coalesce(sum(b.open) FILTER (WHERE b.state = 'ready' AND NOT b.retrying), 0)::bigint AS pending,
    coalesce(sum(b.open) FILTER (WHERE b.state = 'leased'), 0)::bigint AS processing,
    coalesce(sum(b.open) FILTER (WHERE b.state = 'ready' AND b.retrying), 0)::bigint AS retry_wait,
    coalesce(extract(epoch FROM tidemill.now() - min(greatest(b.since, b.not_before))
        FILTER (WHERE b.state = 'ready' AND b.not_before <= tidemill.now() AND j.intent = 'run')), 0)::float8 AS oldest_s
FROM tidemill.batch b JOIN tidemill.job j ON j.id = b.job_id
WHERE b.state IN ('ready', 'leased') AND j.closed_as IS NULL

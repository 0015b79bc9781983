-- Count open items from batches, never from items, and return the age of the oldest due work: a due batch of a job that
-- may run, or a source that no worker reads. Work behind a blocked limiter counts as due when the block ends, and
-- work of a paused job when a user resumes it. Index: batch_open_all, job_runnable, ingest_pkey, activity_job.
WITH open_job AS MATERIALIZED (
    SELECT id, kind, intent, limiter, ingest_done,
        (SELECT max(a.at) FROM tidemill.activity a WHERE a.job_id = j.id AND a.verb = 'resume') AS resumed_at
    FROM tidemill.job j WHERE closed_as IS NULL
)
SELECT coalesce(sum(b.open) FILTER (WHERE b.state = 'ready' AND NOT b.retrying), 0)::bigint AS pending,
    coalesce(sum(b.open) FILTER (WHERE b.state = 'leased'), 0)::bigint AS processing,
    coalesce(sum(b.open) FILTER (WHERE b.state = 'ready' AND b.retrying), 0)::bigint AS retry_wait,
    greatest(0, extract(epoch FROM tidemill.now() - least(min(greatest(b.since, b.not_before, l.blocked_until, j.resumed_at))
        FILTER (WHERE b.state = 'ready' AND b.not_before <= tidemill.now() AND j.intent = 'run'
            AND (j.ingest_done OR NOT tidemill.waits_for_source(j.id))),
        (SELECT min(greatest(u.updated_at, g.lease_until)) FROM tidemill.job u JOIN tidemill.ingest g ON g.job_id = u.id
            WHERE u.closed_as IS NULL AND u.intent = 'run' AND NOT u.ingest_done
              AND (g.lease_id IS NULL OR g.lease_until < tidemill.now())))))::float8 AS oldest_s
FROM tidemill.batch b JOIN open_job j ON j.id = b.job_id LEFT JOIN tidemill.kind k ON k.name = j.kind
LEFT JOIN tidemill.limiter l ON l.name = coalesce(k.options->>'limiter', j.limiter) AND l.key = ''
WHERE b.state IN ('ready', 'leased')

-- Return the facts of a health check. Queue age is the age of the oldest due batch of a job that may run, or of the
-- oldest source that no worker ingests. Work behind a blocked limiter counts as due when the block ends, and work of a
-- paused job when a user resumes it. Reads only the
-- first 1000 rows of each. Workers that run only on demand do not count, because no kickoff request may come. The
-- broker's state is what workers with a broker report. Index: batch_open_all, batch_disconnected, job_runnable,
-- ingest_pkey, activity_job.
SELECT (SELECT count(*) FROM tidemill.worker WHERE seen_at > tidemill.now() - %(silent)s * interval '1 second'
        AND NOT coalesce((info->>'on_demand')::boolean, false)) AS workers,
    (SELECT count(*) FROM (SELECT 1 FROM tidemill.job WHERE closed_as IS NULL AND intent = 'run' LIMIT 1000) j) AS open_jobs,
    greatest((SELECT greatest(0, max(extract(epoch FROM tidemill.now() - greatest(b.since, b.not_before, l.blocked_until,
            (SELECT max(a.at) FROM tidemill.activity a WHERE a.job_id = j.id AND a.verb = 'resume')))))::float8
        FROM (SELECT * FROM tidemill.batch WHERE state IN ('ready', 'leased') ORDER BY since, id LIMIT 1000) b
        JOIN tidemill.job j ON j.id = b.job_id LEFT JOIN tidemill.kind k ON k.name = j.kind
        LEFT JOIN tidemill.limiter l ON l.name = coalesce(k.options->>'limiter', j.limiter) AND l.key = ''
        WHERE b.state = 'ready' AND b.not_before <= tidemill.now() AND j.intent = 'run'
          AND (j.ingest_done OR NOT tidemill.waits_for_source(j.id))),
        (SELECT extract(epoch FROM tidemill.now() - min(greatest(j.updated_at, g.lease_until)))::float8
        FROM (SELECT id, updated_at FROM tidemill.job WHERE closed_as IS NULL AND intent = 'run' AND NOT ingest_done
            ORDER BY priority DESC, id LIMIT 1000) j
        JOIN tidemill.ingest g ON g.job_id = j.id
        WHERE g.lease_id IS NULL OR g.lease_until < tidemill.now()), 0) AS queue_age_s,
    (SELECT CASE WHEN bool_or(info->'broker'->>'trouble' IS NOT NULL) THEN 'lost' ELSE 'ok' END FROM tidemill.worker
        WHERE info ? 'broker' AND seen_at > tidemill.now() - %(silent)s * interval '1 second'
        HAVING count(*) > 0) AS broker,
    (SELECT count(*) FROM (SELECT FROM tidemill.outbox LIMIT 100000) o) AS outbox,
    coalesce((SELECT extract(epoch FROM tidemill.now() - min(created_at))::float8 FROM tidemill.outbox), 0) AS outbox_age_s,
    (SELECT count(*) FROM (SELECT FROM tidemill.quarantine LIMIT 100000) q) AS quarantined,
    (SELECT count(*) FROM (SELECT FROM tidemill.batch WHERE disconnects > 0 AND state IN ('ready', 'leased') LIMIT 1000) b)
        AS disconnected

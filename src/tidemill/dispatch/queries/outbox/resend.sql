-- Write hints for jobs that have been due for too long without a worker and without a waiting hint: it was lost. They
-- get another one after twice the time, and so on; this runs every `window` seconds. A job that waited for a blocked
-- limiter is due since the block ended. Index: job_runnable, batch_claim, batch_turning, outbox_job, limiter_pkey.
INSERT INTO tidemill.outbox (job_id, hints)
SELECT j.id, 1 FROM tidemill.job j LEFT JOIN tidemill.kind k ON k.name = j.kind
LEFT JOIN tidemill.limiter l ON l.name = coalesce(k.options->>'limiter', j.limiter) AND l.key = ''
CROSS JOIN LATERAL (
    SELECT min(since) AS since FROM (
        (SELECT greatest(b.not_before, b.since) AS since FROM tidemill.batch b
         WHERE b.job_id = j.id AND b.state = 'ready' AND (j.ingest_done OR NOT tidemill.waits_for_source(j.id))
         ORDER BY b.not_before, b.id LIMIT 100)
        UNION ALL
        SELECT j.created_at FROM tidemill.ingest g WHERE g.job_id = j.id AND g.lease_id IS NULL AND NOT j.ingest_done) work
) due
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM tidemill.now() - greatest(due.since, l.blocked_until))::float8 / %(seconds)s AS now,
        %(window)s::float8 / %(seconds)s AS step WHERE due.since IS NOT NULL
) age
WHERE j.closed_as IS NULL AND j.intent = 'run' AND EXISTS (SELECT FROM tidemill.broker)
  AND NOT EXISTS (SELECT FROM tidemill.outbox o WHERE o.job_id = j.id)
  AND NOT EXISTS (SELECT FROM tidemill.batch b WHERE b.job_id = j.id AND b.state = 'leased')
  AND CASE WHEN age.now < 1 THEN false WHEN age.now - age.step < 1 THEN true
           ELSE floor(ln(age.now) / ln(2)) > floor(ln(age.now - age.step) / ln(2)) END
ORDER BY j.priority DESC, j.id LIMIT %(limit)s
ON CONFLICT DO NOTHING
RETURNING job_id

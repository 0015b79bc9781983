-- Hints for jobs that have been due for too long while nobody works on them and no hint is on its way: it was lost. Not
-- for those that their limiter keeps waiting. Index: job_runnable, batch_claim, batch_turning, outbox_job.
INSERT INTO tidemill.outbox (job_id, hints)
SELECT j.id, 1 FROM tidemill.job j LEFT JOIN tidemill.kind k ON k.name = j.kind
WHERE j.closed_as IS NULL AND j.intent = 'run' AND EXISTS (SELECT FROM tidemill.broker)
  AND j.created_at < tidemill.now() - %(seconds)s * interval '1 second'
  AND coalesce(k.options->>'limiter', j.limiter, '') <> ALL (ARRAY(
      SELECT l.name FROM tidemill.limiter l WHERE l.key = '' AND l.blocked_until > tidemill.now() - %(seconds)s * interval '1 second'))
  AND NOT EXISTS (SELECT FROM tidemill.outbox o WHERE o.job_id = j.id)
  AND NOT EXISTS (SELECT FROM tidemill.batch b WHERE b.job_id = j.id AND b.state = 'leased')
  AND (EXISTS (SELECT FROM tidemill.batch b WHERE b.job_id = j.id AND b.state = 'ready'
                 AND b.not_before <= tidemill.now() - %(seconds)s * interval '1 second'
                 AND b.since <= tidemill.now() - %(seconds)s * interval '1 second')
       OR (NOT j.ingest_done AND EXISTS (SELECT FROM tidemill.ingest g WHERE g.job_id = j.id AND g.lease_id IS NULL)))
ORDER BY j.priority DESC, j.id LIMIT %(limit)s
ON CONFLICT DO NOTHING
RETURNING job_id

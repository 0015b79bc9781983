-- Jobs with something to claim now, for a worker to choose from. Index: job_runnable, batch_claim, batch_turning.
SELECT j.id, j.owner_id, j.kind, j.priority,
    EXISTS (SELECT 1 FROM tidemill.batch b WHERE b.job_id = j.id AND b.state = 'leased') AS turning
FROM tidemill.job j
WHERE j.closed_as IS NULL AND j.intent = 'run' AND j.kind = ANY(%(kinds)s)
  AND EXISTS (SELECT 1 FROM tidemill.batch b
              WHERE b.job_id = j.id AND b.state = 'ready' AND b.not_before <= tidemill.now())
ORDER BY j.priority DESC, j.id LIMIT 500

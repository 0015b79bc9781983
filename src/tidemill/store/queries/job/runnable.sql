-- Jobs with something to claim now, for a worker to choose from, and how many jobs of their owner are being
-- worked on. Index: job_runnable, batch_claim, batch_turning.
WITH turning AS (
    SELECT owner_id, count(DISTINCT job_id) AS jobs FROM tidemill.batch WHERE state = 'leased' GROUP BY owner_id
)
SELECT j.id, j.owner_id, j.kind, j.priority, coalesce(t.jobs, 0) AS owner_turning,
    EXISTS (SELECT 1 FROM tidemill.batch b WHERE b.job_id = j.id AND b.state = 'leased') AS turning
FROM tidemill.job j LEFT JOIN turning t ON t.owner_id = j.owner_id
WHERE j.closed_as IS NULL AND j.intent = 'run' AND j.kind = ANY(%(kinds)s)
  AND EXISTS (SELECT 1 FROM tidemill.batch b
              WHERE b.job_id = j.id AND b.state = 'ready' AND b.not_before <= tidemill.now())
ORDER BY j.priority DESC, j.id LIMIT 500

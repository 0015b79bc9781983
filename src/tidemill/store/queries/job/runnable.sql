-- List jobs with due batches for a worker to choose from: up to 50 jobs of every owner and the hinted jobs, each with
-- the number of its owner's jobs in progress. Skips jobs whose limiter is blocked, either the limiter of the kind or
-- that of the external service, and jobs that require something this worker lacks. Index: job_runnable, batch_claim, batch_turning, limiter_pkey.
WITH turning AS (
    SELECT owner_id, count(DISTINCT job_id) AS jobs FROM tidemill.batch WHERE state = 'leased' GROUP BY owner_id
)
SELECT id, owner_id, kind, priority, owner_turning, turning FROM (
    SELECT j.id, j.owner_id, j.kind, j.priority, coalesce(t.jobs, 0) AS owner_turning, l.turning,
        row_number() OVER (PARTITION BY j.owner_id ORDER BY l.turning DESC, j.priority DESC, j.id) AS place
    FROM tidemill.job j LEFT JOIN turning t ON t.owner_id = j.owner_id LEFT JOIN tidemill.kind k ON k.name = j.kind
    CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT 1 FROM tidemill.batch b WHERE b.job_id = j.id AND b.state = 'leased') AS turning
    ) l
    WHERE j.closed_as IS NULL AND j.intent = 'run' AND j.kind = ANY(%(kinds)s)
      AND NOT j.requires && %(missing)s::text[]
      AND coalesce(k.options->>'limiter', j.limiter, '') <> ALL (ARRAY(
          SELECT l.name FROM tidemill.limiter l
          WHERE l.key = '' AND l.blocked_until > tidemill.now() + interval '2 seconds'))
      AND (j.ingest_done OR NOT tidemill.waits_for_source(j.id))
      AND EXISTS (SELECT 1 FROM tidemill.batch b
                  WHERE b.job_id = j.id AND b.state = 'ready' AND b.not_before <= tidemill.now())
) runnable
WHERE place <= 50 OR id = ANY(%(hinted)s) ORDER BY id = ANY(%(hinted)s) DESC, priority DESC, id LIMIT 5000

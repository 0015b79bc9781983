-- A block of hints for one relay, the oldest first, by state and never by a cursor: an older row may commit later.
-- What another relay claimed and did not send in time is taken again. `wanted` is false when nobody needs the hint any
-- more: the job is gone, closed, or is not to run. Index: outbox_pkey, job_pkey. By an array, not by a join: after a
-- vacuum of an empty outbox the planner believes in one row and would compare each hint with each.
WITH due AS (
    SELECT id FROM tidemill.outbox WHERE claimed_until IS NULL OR claimed_until <= tidemill.now()
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE tidemill.outbox o
    SET claimed_by = %(worker)s, claimed_until = tidemill.now() + %(seconds)s * interval '1 second'
    WHERE o.id = ANY(ARRAY(SELECT id FROM due)) RETURNING o.*
)
SELECT t.id, t.job_id, t.hints, t.batches, t.created_at, t.attempts, j.kind, j.traceparent,
    coalesce(j.closed_as IS NULL AND j.intent = 'run', false) AS wanted
FROM taken t LEFT JOIN tidemill.job j ON j.id = t.job_id ORDER BY t.id

-- Claim a block of hints for one relay, oldest first. It selects by state and not by a cursor, because an older row may
-- commit later. Hints that another relay claimed and did not send in time are claimed again. `wanted` is false if the
-- job was deleted, is closed or may not run. It uses an array instead of a join: after a vacuum of an empty outbox the
-- planner expects one row and would choose a nested loop. Index: outbox_pkey, job_pkey.
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

-- Release claimed hints that were not sent, so that any relay can claim them immediately. A job has at most one unsent
-- hint: if another one waits, both are merged. Index: outbox_pkey, outbox_unsent.
WITH back AS (
    DELETE FROM tidemill.outbox WHERE id = ANY(%(ids)s) AND claimed_by = %(worker)s
    RETURNING job_id, hints, batches, created_at, attempts
)
INSERT INTO tidemill.outbox AS unsent (job_id, hints, batches, created_at, attempts, error)
SELECT DISTINCT ON (job_id) job_id, hints, batches, created_at, attempts, %(error)s::text FROM back
ORDER BY job_id, created_at
ON CONFLICT (job_id) WHERE claimed_by IS NULL
DO UPDATE SET created_at = least(unsent.created_at, excluded.created_at), hints = greatest(unsent.hints, excluded.hints)

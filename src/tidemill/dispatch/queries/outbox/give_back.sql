-- They were not sent: whoever finds the broker again may take them at once, one per job, as if nobody had taken them. Where
-- another one of the job waits by now, that is the one. Index: outbox_pkey, outbox_unsent.
WITH back AS (
    DELETE FROM tidemill.outbox WHERE id = ANY(%(ids)s) AND claimed_by = %(worker)s
    RETURNING job_id, hints, batches, created_at, attempts
)
INSERT INTO tidemill.outbox AS unsent (job_id, hints, batches, created_at, attempts, error)
SELECT DISTINCT ON (job_id) job_id, hints, batches, created_at, attempts, %(error)s::text FROM back
ORDER BY job_id, created_at
ON CONFLICT (job_id) WHERE claimed_by IS NULL
DO UPDATE SET created_at = least(unsent.created_at, excluded.created_at), hints = greatest(unsent.hints, excluded.hints)

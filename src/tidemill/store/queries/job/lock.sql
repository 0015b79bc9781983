-- The lock of a job: first of every change to it as a whole. NO KEY, so that no insert waits behind it.
SELECT id, owner_id, kind, intent, ingest_done, closed_as, purged_at
FROM tidemill.job WHERE id = %(job_id)s FOR NO KEY UPDATE

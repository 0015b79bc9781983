-- Lock a job: the first step of every change to the job itself. FOR NO KEY UPDATE, so that inserts do not wait.
SELECT id, owner_id, kind, intent, ingest_done, closed_as, purged_at
FROM tidemill.job WHERE id = %(job_id)s FOR NO KEY UPDATE

-- Count the bulk operations that run, and the deleted jobs whose rows still exist.
SELECT (SELECT count(*) FROM tidemill.operation WHERE state = 'running' AND user_id IN (0, %(owner_id)s)) AS operations,
    (SELECT count(*) FROM tidemill.deleted_job WHERE job_id = ANY(%(job_ids)s)) AS deleted_jobs

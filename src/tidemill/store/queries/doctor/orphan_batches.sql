-- 8. Every batch has a job.
SELECT b.job_id, b.id AS batch, b.state FROM tidemill.batch b
WHERE NOT EXISTS (SELECT 1 FROM tidemill.job j WHERE j.id = b.job_id)
  AND (%(job_id)s::uuid IS NULL OR b.job_id = %(job_id)s) LIMIT 10

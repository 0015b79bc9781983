-- Deleted jobs with rows still to remove.
SELECT job_id FROM tidemill.deleted_job ORDER BY at LIMIT 10

-- List deleted jobs whose rows are not all deleted yet.
SELECT job_id FROM tidemill.deleted_job ORDER BY at LIMIT 10

-- Locks a job for a change of its rows that leaves the job as it is: meanwhile it is not deleted or purged.
SELECT purged_at FROM tidemill.job WHERE id = %(job_id)s FOR KEY SHARE

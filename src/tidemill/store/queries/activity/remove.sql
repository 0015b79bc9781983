-- Delete the activity of a deleted job. Index: activity_job.
DELETE FROM tidemill.activity WHERE job_id = %(job_id)s

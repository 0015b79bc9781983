-- With their job. Index: delivery_job.
DELETE FROM tidemill.delivery WHERE job_id = %(job_id)s

-- Delete the delivery counts of a deleted job. Index: delivery_job.
DELETE FROM tidemill.delivery WHERE job_id = %(job_id)s

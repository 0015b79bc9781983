-- Delete the hints of a deleted job. Index: outbox_job.
DELETE FROM tidemill.outbox WHERE job_id = %(job_id)s

-- Delete the fixes of a deleted job.
DELETE FROM tidemill.item_fix WHERE job_id = %(job_id)s

-- Delete batches of a deleted job. The caller repeats it until none is left, because a flush that commits meanwhile may
-- add a list.
DELETE FROM tidemill.batch WHERE job_id = %(job_id)s

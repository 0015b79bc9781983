-- Delete a chunk of the exceptions of undos of purged jobs. Index: undo_exception_job.
DELETE FROM tidemill.undo_exception WHERE id = ANY(ARRAY(
    SELECT e.id FROM tidemill.undo_exception e JOIN tidemill.job j ON j.id = e.job_id
    WHERE j.purged_at IS NOT NULL LIMIT %(limit)s))

-- Delete a chunk of the undo logs of purged jobs. An interrupted purge leaves logs, which the next purge deletes. Index:
-- undo_log_job.
DELETE FROM tidemill.undo_log WHERE id = ANY(ARRAY(
    SELECT l.id FROM tidemill.undo_log l JOIN tidemill.job j ON j.id = l.job_id
    WHERE j.purged_at IS NOT NULL LIMIT %(limit)s))

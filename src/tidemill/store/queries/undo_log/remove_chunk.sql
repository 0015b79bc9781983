-- Delete a chunk of the undo log of a deleted job. Index: undo_log_job.
DELETE FROM tidemill.undo_log WHERE id = ANY(ARRAY(
    SELECT id FROM tidemill.undo_log WHERE job_id = %(job_id)s ORDER BY id LIMIT %(limit)s))

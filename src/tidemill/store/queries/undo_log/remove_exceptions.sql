-- Delete a chunk of the rows of a deleted job that an undo did not reverse. Index: undo_exception_job.
DELETE FROM tidemill.undo_exception WHERE id = ANY(ARRAY(
    SELECT id FROM tidemill.undo_exception WHERE job_id = %(job_id)s ORDER BY id LIMIT %(limit)s))

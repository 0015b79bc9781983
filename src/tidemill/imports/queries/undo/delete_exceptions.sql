-- Forgets the rows that earlier undos of an import did not reverse. Index: undo_exception_job.
DELETE FROM tidemill.undo_exception WHERE job_id = %(job_id)s

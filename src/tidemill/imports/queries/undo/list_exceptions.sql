-- A page of the rows that the last undo or redo of an import did not reverse. Index: undo_exception_job.
SELECT id, status, code, reason, key FROM tidemill.undo_exception
WHERE job_id = %(job_id)s AND id > %(after)s AND (%(status)s::text IS NULL OR status = %(status)s)
ORDER BY id LIMIT %(limit)s

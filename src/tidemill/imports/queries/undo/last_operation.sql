-- The id of the newest undo or redo of an import. Index: operation_job.
SELECT id FROM tidemill.operation WHERE job_id = %(job_id)s AND verb IN ('undo', 'redo') ORDER BY id DESC LIMIT 1

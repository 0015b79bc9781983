-- Return the running undo or redo of an import. Index: operation_job.
SELECT id FROM tidemill.operation
WHERE state = 'running' AND verb IN ('undo', 'redo') AND job_id = %(job_id)s LIMIT 1

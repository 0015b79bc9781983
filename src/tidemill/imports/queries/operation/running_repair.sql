-- Return the running repair of a cause of an import. Index: operation_running.
SELECT id FROM tidemill.operation
WHERE state = 'running' AND verb = 'repair' AND job_id = %(job_id)s AND predicate->>'cause' = %(cause)s LIMIT 1

-- Return and lock an unfinished bulk operation that no other worker has locked. Index: operation_running.
SELECT * FROM tidemill.operation WHERE state = 'running' AND (%(id)s::uuid IS NULL OR id = %(id)s)
ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED

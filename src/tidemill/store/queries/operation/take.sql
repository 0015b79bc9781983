-- Return and lock an unfinished bulk operation that no other worker has locked, with a verb that this process can run.
-- Index: operation_running.
SELECT * FROM tidemill.operation
WHERE state = 'running' AND verb = ANY(%(verbs)s::text[]) AND (%(id)s::uuid IS NULL OR id = %(id)s)
ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED

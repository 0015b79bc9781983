-- One that is not finished and that nobody is at, held until the end of the transaction. Index: operation_running.
SELECT * FROM tidemill.operation WHERE state = 'running' AND (%(id)s::uuid IS NULL OR id = %(id)s)
ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED

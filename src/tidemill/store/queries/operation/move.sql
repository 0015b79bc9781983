-- Record one step of a bulk operation, in the transaction of the step, so that no step runs twice. running -> running |
-- done.
UPDATE tidemill.operation SET items = items + %(items)s, place = %(place)s, state = %(state)s, updated_at = tidemill.now()
WHERE id = %(id)s

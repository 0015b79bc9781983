-- A step further: in the transaction of the step itself, so that none is done twice. running -> running | done.
UPDATE tidemill.operation SET items = items + %(items)s, place = %(place)s, state = %(state)s, updated_at = tidemill.now()
WHERE id = %(id)s

-- running -> cancelled. It waits for the current step; changes of earlier steps stay. Index: operation_pkey.
UPDATE tidemill.operation SET state = 'cancelled', updated_at = tidemill.now() WHERE id = %(id)s AND state = 'running'

-- One worker at a time does the duty for all; it keeps it while it is alive.
UPDATE tidemill.duty SET worker = %(worker)s, until = tidemill.now() + %(seconds)s * interval '1 second'
WHERE name = %(name)s AND (worker = %(worker)s OR until < tidemill.now())
RETURNING 1

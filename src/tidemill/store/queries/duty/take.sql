-- Take or keep a duty. One worker at a time has it, until it stops renewing it.
UPDATE tidemill.duty SET worker = %(worker)s, until = tidemill.now() + %(seconds)s * interval '1 second'
WHERE name = %(name)s AND (worker = %(worker)s OR until < tidemill.now())
RETURNING 1

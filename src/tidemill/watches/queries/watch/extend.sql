-- For as long as the scan goes on; no row when somebody else has it by now. Index: watch_pkey.
UPDATE tidemill.watch SET lease_until = tidemill.now() + %(seconds)s * interval '1 second'
WHERE name = %(name)s AND lease_id = %(lease_id)s
RETURNING 1

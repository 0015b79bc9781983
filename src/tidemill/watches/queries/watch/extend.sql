-- Extend the lease while the scan runs. Returns no row if the lease was lost. Index: watch_pkey.
UPDATE tidemill.watch SET lease_until = tidemill.now() + %(seconds)s * interval '1 second'
WHERE name = %(name)s AND lease_id = %(lease_id)s
RETURNING 1

-- Lease this watch now, unless another process holds its lease. Index: watch_pkey.
UPDATE tidemill.watch SET lease_id = %(lease_id)s, worker = %(worker)s,
    lease_until = tidemill.now() + %(seconds)s * interval '1 second'
WHERE name = %(name)s AND (lease_until IS NULL OR lease_until < tidemill.now())
RETURNING name, true, tidemill.now(), failures

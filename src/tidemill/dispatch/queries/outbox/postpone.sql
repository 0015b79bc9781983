-- Postpone a hint that the broker rejected; the delay doubles with each attempt. Index: outbox_pkey.
UPDATE tidemill.outbox SET attempts = attempts + 1, error = %(error)s,
    claimed_until = tidemill.now() + least(60, %(delay)s * 2 ^ attempts) * interval '1 second'
WHERE id = %(id)s AND claimed_by = %(worker)s

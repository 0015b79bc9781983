-- The broker would not take this one: it is tried again later, each time twice as late. Index: outbox_pkey.
UPDATE tidemill.outbox SET attempts = attempts + 1, error = %(error)s,
    claimed_until = tidemill.now() + least(60, %(delay)s * 2 ^ attempts) * interval '1 second'
WHERE id = %(id)s AND claimed_by = %(worker)s

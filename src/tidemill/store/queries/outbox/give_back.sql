-- The broker was lost before these were sent: whoever finds it again may take them at once. Index: outbox_pkey.
UPDATE tidemill.outbox SET claimed_until = tidemill.now(), error = %(error)s
WHERE id = ANY(%(ids)s) AND claimed_by = %(worker)s

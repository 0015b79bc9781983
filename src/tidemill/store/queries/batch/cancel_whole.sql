-- ready -> cancelled: cancel an entire range. Index: batch_pkey.
UPDATE tidemill.batch SET state = 'cancelled', cancelled = cancelled + open, open = 0, closed_at = tidemill.now()
WHERE id = %(batch_id)s

-- Subtract n items that were requeued in a list from a cancelled range. Index: batch_pkey.
UPDATE tidemill.batch SET cancelled = cancelled - %(n)s WHERE id = %(batch_id)s

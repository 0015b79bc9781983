-- Make lists due now. Index: batch_pkey.
UPDATE tidemill.batch SET not_before = tidemill.now() WHERE id = ANY(%(ids)s)

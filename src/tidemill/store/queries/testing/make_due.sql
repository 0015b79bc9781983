-- Tests do not wait: every waiting batch is due now. True if there was one.
UPDATE tidemill.batch SET not_before = tidemill.now() WHERE state = 'ready' AND not_before > tidemill.now()

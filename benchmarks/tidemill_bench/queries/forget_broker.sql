-- Removes the registered broker and all unsent hints.
WITH gone AS (DELETE FROM tidemill.outbox) DELETE FROM tidemill.broker

-- No worker has a broker; hints that nobody sent go with it.
WITH gone AS (DELETE FROM tidemill.outbox) DELETE FROM tidemill.broker

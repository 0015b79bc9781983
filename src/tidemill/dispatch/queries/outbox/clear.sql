-- The installation has no broker any more: nobody would ever send these.
DELETE FROM tidemill.outbox WHERE NOT EXISTS (SELECT FROM tidemill.broker)

-- Delete all hints if the installation has no broker any more.
DELETE FROM tidemill.outbox WHERE NOT EXISTS (SELECT FROM tidemill.broker)

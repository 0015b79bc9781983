-- One migrator at a time; the lock ends with the transaction.
SELECT pg_advisory_xact_lock(hashtext('tidemill.migrate'))

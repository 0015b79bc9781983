-- Lock migrations: one process at a time runs them, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtext('tidemill.migrate'))

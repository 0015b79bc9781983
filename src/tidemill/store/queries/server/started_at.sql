-- Return when the database server started. A crash recovery does not change it.
SELECT pg_postmaster_start_time()

-- Transactions so old that VACUUM cannot remove dead rows. Dead rows make claims slower.
SELECT pid, state, extract(epoch FROM clock_timestamp() - xact_start)::int AS seconds, left(query, 60) AS query
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND backend_xmin IS NOT NULL AND xact_start < clock_timestamp() - interval '5 minutes' ORDER BY xact_start LIMIT 5

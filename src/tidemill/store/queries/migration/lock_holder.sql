-- The session with the oldest transaction that holds a lock on a table of Tidemill, or that runs migrations.
SELECT a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'), extract(epoch FROM clock_timestamp() - a.xact_start)::float8
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_class c ON c.oid = l.relation AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
WHERE l.granted AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL AND a.datname = current_database()
  AND (c.relnamespace = to_regnamespace('tidemill') OR l.locktype = 'advisory')
ORDER BY a.xact_start LIMIT 1

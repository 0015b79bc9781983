-- The connections of clients to the database.
SELECT count(*)::float8 FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'

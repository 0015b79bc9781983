-- The dead row versions that no vacuum has removed yet.
SELECT coalesce(sum(n_dead_tup), 0)::float8 FROM pg_stat_user_tables WHERE schemaname = 'tidemill'

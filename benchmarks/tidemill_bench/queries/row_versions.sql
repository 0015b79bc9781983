-- How many row versions the engine has made dead so far: each UPDATE and DELETE makes one, and these counts
-- only grow, whatever HOT pruning or a vacuum cleared away since.
SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables WHERE schemaname = 'tidemill'

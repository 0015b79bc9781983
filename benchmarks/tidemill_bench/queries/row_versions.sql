-- The number of dead row versions so far: each UPDATE and DELETE creates one. HOT pruning and vacuum do not lower these
-- counters.
SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables WHERE schemaname = 'tidemill'

-- List partitions that were detached but not dropped, because a purge was interrupted.
SELECT c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'tidemill' AND c.relkind = 'r' AND NOT c.relispartition
  AND c.relname ~ '^(item|outcome)_\d{4}w\d{2}$'

-- The workers and how long ago each was heard of.
SELECT id, host, pid, started_at, seen_at, info, extract(epoch FROM tidemill.now() - seen_at)::float8 AS silent_s
FROM tidemill.worker ORDER BY started_at

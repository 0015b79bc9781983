-- How many hints wait, since when, and how much is in quarantine; each is counted to a limit, no further.
SELECT (SELECT count(*) FROM (SELECT FROM tidemill.outbox LIMIT 100000) o) AS depth,
    coalesce((SELECT extract(epoch FROM tidemill.now() - min(created_at)) FROM tidemill.outbox), 0)::float8 AS oldest_s,
    (SELECT count(*) FROM (SELECT FROM tidemill.quarantine LIMIT 100000) q) AS quarantined

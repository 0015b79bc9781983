-- Count waiting hints and quarantined messages, each up to a limit, and measure the age of the oldest hint.
SELECT (SELECT count(*) FROM (SELECT FROM tidemill.outbox LIMIT 100000) o) AS depth,
    coalesce((SELECT extract(epoch FROM tidemill.now() - min(created_at)) FROM tidemill.outbox), 0)::float8 AS oldest_s,
    (SELECT count(*) FROM (SELECT FROM tidemill.quarantine LIMIT 100000) q) AS quarantined

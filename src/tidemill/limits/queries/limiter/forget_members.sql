-- Delete members that were idle for long and whose bucket is full again. Index: none, there are few members.
DELETE FROM tidemill.limiter WHERE key <> '' AND used_at < tidemill.now() - %(idle)s * interval '1 second'
  AND coalesce(blocked_until < tidemill.now(), true)
  AND (pace IS NULL OR at + (depth - level) / (pace * share) < extract(epoch FROM tidemill.now()))

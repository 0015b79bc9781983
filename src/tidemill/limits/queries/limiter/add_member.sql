-- Add a member of a limiter, unless the limiter has the maximum number of members. Index: limiter_pkey.
INSERT INTO tidemill.limiter (name, key, declared, rate, burst, concurrency, adaptive, lowest, pace, depth, slack, level)
SELECT name, %(key)s, declared, rate, burst, concurrency, adaptive, lowest, pace, depth, slack, depth
FROM tidemill.limiter
WHERE name = %(name)s AND key = ''
  AND (%(key)s = %(rest)s OR (SELECT count(*) FROM tidemill.limiter WHERE name = %(name)s) <= %(most)s)
ON CONFLICT (name, key) DO NOTHING

-- A member that is used for the first time, or again after long; none beyond so many. Index: limiter_pkey.
INSERT INTO tidemill.limiter (name, key, declared, rate, burst, concurrency, adaptive, lowest, pace, depth, slack, level)
SELECT name, %(key)s, declared, rate, burst, concurrency, adaptive, lowest, pace, depth, slack, depth
FROM tidemill.limiter
WHERE name = %(name)s AND key = ''
  AND (%(key)s = %(rest)s OR (SELECT count(*) FROM tidemill.limiter WHERE name = %(name)s) <= %(most)s)
ON CONFLICT (name, key) DO NOTHING

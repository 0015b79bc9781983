-- Change a limiter until its declaration changes. Unused permits do not accumulate into a burst.
UPDATE tidemill.limiter SET rate = %(rate)s, burst = %(burst)s, concurrency = %(concurrency)s, pace = %(pace)s,
    depth = %(depth)s, slack = %(slack)s, share = 1, share_at = tidemill.now(), spare = '{}', level = least(level, 0),
    at = greatest(at, extract(epoch FROM tidemill.now()))
WHERE name = %(name)s AND key = ''

-- Copy the limits of a limiter that was declared or changed to its members. Index: limiter_pkey.
UPDATE tidemill.limiter m SET declared = l.declared, rate = l.rate, burst = l.burst, concurrency = l.concurrency,
    adaptive = l.adaptive, lowest = l.lowest, pace = l.pace, depth = l.depth, slack = l.slack, share = 1, spare = '{}',
    share_at = tidemill.now(), level = least(m.level, 0), at = greatest(m.at, extract(epoch FROM tidemill.now()))
FROM tidemill.limiter l
WHERE l.name = %(name)s AND l.key = '' AND m.name = l.name AND m.key <> ''
  AND (m.rate, m.burst, m.concurrency, m.adaptive, m.lowest) IS DISTINCT FROM (l.rate, l.burst, l.concurrency, l.adaptive, l.lowest)

-- A limiter as it is declared now. One that is declared as before stays as it is, also if an administrator changed it;
-- else it begins with what it had, but never with more than it may. Index: limiter_pkey.
INSERT INTO tidemill.limiter AS l (name, declared, rate, burst, concurrency, adaptive, lowest, pace, depth, slack, level)
VALUES (%(name)s, %(declared)s, %(rate)s, %(burst)s, %(concurrency)s, %(adaptive)s, %(lowest)s, %(pace)s, %(depth)s,
    %(slack)s, %(depth)s)
ON CONFLICT (name, key) DO UPDATE SET declared = excluded.declared, rate = excluded.rate, burst = excluded.burst,
    concurrency = excluded.concurrency, adaptive = excluded.adaptive, lowest = excluded.lowest, pace = excluded.pace,
    depth = excluded.depth, slack = excluded.slack, share = 1, share_at = tidemill.now(), level = least(l.level, 0), spare = '{}',
    at = greatest(l.at, extract(epoch FROM tidemill.now()))
WHERE l.declared <> excluded.declared

-- Store a declared limiter. An unchanged declaration keeps the row, including changes by an admin. A changed one keeps
-- at most an empty bucket, so that no burst starts. Index: limiter_pkey.
INSERT INTO tidemill.limiter AS l (name, declared, rate, burst, concurrency, adaptive, lowest, pace, depth, slack, level)
VALUES (%(name)s, %(declared)s, %(rate)s, %(burst)s, %(concurrency)s, %(adaptive)s, %(lowest)s, %(pace)s, %(depth)s,
    %(slack)s, %(depth)s)
ON CONFLICT (name, key) DO UPDATE SET declared = excluded.declared, rate = excluded.rate, burst = excluded.burst,
    concurrency = excluded.concurrency, adaptive = excluded.adaptive, lowest = excluded.lowest, pace = excluded.pace,
    depth = excluded.depth, slack = excluded.slack, share = 1, share_at = tidemill.now(), level = least(l.level, 0), spare = '{}',
    at = greatest(l.at, extract(epoch FROM tidemill.now()))
WHERE l.declared <> excluded.declared

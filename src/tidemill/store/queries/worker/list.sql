-- List workers with the time since their last heartbeat and the number of items they have leased. Index: batch_leased.
SELECT id, host, pid, started_at, seen_at, info, extract(epoch FROM tidemill.now() - seen_at)::float8 AS silent_s,
    (SELECT coalesce(sum(b.open), 0)::bigint FROM tidemill.batch b WHERE b.worker = w.id AND b.state = 'leased') AS in_hand
FROM tidemill.worker w ORDER BY started_at

-- Return the seconds by which the clock is behind the newest stored time, negative if it is ahead. All these times were
-- in the past when they were stored. Index: batch_open_all; sequential scan of the few workers.
SELECT extract(epoch FROM greatest(
    (SELECT max(since) FROM tidemill.batch WHERE state IN ('ready', 'leased')),
    (SELECT max(seen_at) FROM tidemill.worker)) - tidemill.now())::float8

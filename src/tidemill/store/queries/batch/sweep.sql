-- leased -> ready: reclaim expired leases. A lost host does not count as an attempt; after the third loss in a row the
-- batch runs in isolation. Reads the few leased rows, because no index has lease_until. Index: batch_leased.
WITH expired AS (
    SELECT id FROM tidemill.batch WHERE state = 'leased' AND lease_until < tidemill.now()
    ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED
)
UPDATE tidemill.batch b SET state = 'ready', lease_id = NULL, lease_until = NULL, worker = NULL,
    since = tidemill.now(), not_before = tidemill.now(), losses = least(losses + 1, 1000),
    isolated = isolated OR losses + 1 >= %(isolate_at)s
FROM expired WHERE b.id = expired.id
RETURNING b.id, b.job_id, b.losses

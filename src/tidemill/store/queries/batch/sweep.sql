-- leased -> ready: reclaim expired leases. A lost host does not count as an attempt; after the third loss in a row the
-- batch runs in isolation. If the lease of an isolated item expires again, the item is postponed for a random time, so
-- that it does not run beside the item that ends the worker. Reads the few leased rows, because no index has
-- lease_until. Index: batch_leased.
WITH expired AS (
    SELECT id FROM tidemill.batch WHERE state = 'leased' AND lease_until < tidemill.now()
    ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED
)
UPDATE tidemill.batch b SET state = 'ready', lease_id = NULL, lease_until = NULL, worker = NULL,
    since = tidemill.now(), losses = least(losses + 1, 1000), isolated = isolated OR losses + 1 >= %(isolate_at)s,
    expiries = CASE WHEN isolated THEN least(expiries + 1, 1000) ELSE 0 END,
    not_before = tidemill.now() + CASE WHEN isolated
        THEN random() * least(2 ^ least(expiries, 30), %(postpone_max_s)s) * interval '1 second' ELSE interval '0' END
FROM expired WHERE b.id = expired.id
RETURNING b.id, b.job_id, b.losses

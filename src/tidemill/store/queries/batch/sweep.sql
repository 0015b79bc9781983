-- leased -> ready: leases that ran out. A lost host charges nobody; from the third loss in a row the batch
-- runs in isolation. Reads the few leased rows: lease_until is in no index. Index: batch_leased.
WITH expired AS (
    SELECT id FROM tidemill.batch WHERE state = 'leased' AND lease_until < tidemill.now()
    ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED
)
UPDATE tidemill.batch b SET state = 'ready', lease_id = NULL, lease_until = NULL, worker = NULL,
    since = tidemill.now(), not_before = tidemill.now(), losses = least(losses + 1, 1000),
    isolated = isolated OR losses + 1 >= %(isolate_at)s
FROM expired WHERE b.id = expired.id
RETURNING b.id, b.job_id, b.losses

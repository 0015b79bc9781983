-- leased -> ready: release the rest of a batch without counting an attempt. `open` keeps its value. Without flush_no:
-- the parent process releases the batch of a dead child process. Index: batch_pkey.
UPDATE tidemill.batch SET state = 'ready', lease_id = NULL, lease_until = NULL, worker = NULL,
    since = tidemill.now(), not_before = tidemill.now(), losses = least(losses + %(losses)s, 1000),
    isolated = isolated OR losses + %(losses)s >= %(isolate_at)s
WHERE id = %(batch_id)s AND lease_id = %(lease_id)s AND state = 'leased'
  AND flush_no = coalesce(%(flush_no)s, flush_no)
RETURNING crashes, open

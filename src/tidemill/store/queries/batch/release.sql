-- leased -> ready: the rest of a batch goes back, uncharged. `open` is the row's own.
-- Without flush_no: a parent speaks for a dead child. Index: batch_pkey.
UPDATE tidemill.batch SET state = 'ready', lease_id = NULL, lease_until = NULL, worker = NULL,
    since = tidemill.now(), not_before = tidemill.now(), losses = least(losses + %(losses)s, 1000),
    isolated = isolated OR losses + %(losses)s >= %(isolate_at)s
WHERE id = %(batch_id)s AND lease_id = %(lease_id)s AND state = 'leased'
  AND flush_no = coalesce(%(flush_no)s, flush_no)
RETURNING crashes, open

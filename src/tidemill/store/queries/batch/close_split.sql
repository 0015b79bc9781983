-- leased -> done: close a batch that is split. The same transaction moves its open items to the parts.
UPDATE tidemill.batch SET state = 'done', open = 0, closed_at = tidemill.now(),
    seqs = CASE WHEN seqs IS NULL THEN NULL ELSE '{}'::bigint[] END
WHERE id = %(batch_id)s AND lease_id = %(lease_id)s AND state = 'leased'
  AND flush_no = coalesce(%(flush_no)s, flush_no)
RETURNING 1

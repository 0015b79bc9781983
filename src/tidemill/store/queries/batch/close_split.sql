-- leased -> done: the parent of a split; its open items move to the pieces in the same transaction.
UPDATE tidemill.batch SET state = 'done', open = 0, closed_at = tidemill.now(),
    seqs = CASE WHEN seqs IS NULL THEN NULL ELSE '{}'::bigint[] END
WHERE id = %(batch_id)s AND lease_id = %(lease_id)s AND state = 'leased'
  AND flush_no = coalesce(%(flush_no)s, flush_no)
RETURNING 1

-- cancelled -> ready: requeue the cancelled ranges of a reprocessed job that are not folded, except ranges with an
-- excluded item. Index: batch_cover.
UPDATE tidemill.batch b SET state = 'ready', open = cancelled, cancelled = 0, since = tidemill.now(),
    not_before = tidemill.now(), lease_id = NULL, folded = false, closed_at = NULL
WHERE job_id = %(job_id)s AND seqs IS NULL AND state = 'cancelled' AND cancelled > 0
  AND NOT EXISTS (SELECT 1 FROM unnest(%(but)s::bigint[]) AS stays(seq) WHERE stays.seq >= b.lo AND stays.seq < b.hi)
RETURNING open

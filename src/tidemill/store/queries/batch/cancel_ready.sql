-- ready -> cancelled: what an intent condemned, again and again until nothing is left. A flush or a chunk that
-- commits late leaves a ready batch behind; the next round takes it. Lists are empty of items afterwards, and few at a
-- time: each of their items has an outcome to write. In no order, so that a round reads what it takes; nobody waits.
-- The job's row is held too: a reprocess may want it to run again. Index: job_runnable, batch_claim.
WITH condemned AS (
    SELECT b.id, b.seqs FROM tidemill.job j JOIN tidemill.batch b ON b.job_id = j.id AND b.state = 'ready'
    WHERE j.closed_as IS NULL AND j.intent IN ('cancel', 'fail') AND (%(job_id)s::uuid IS NULL OR j.id = %(job_id)s)
      AND (b.seqs IS NOT NULL) = %(lists)s
    LIMIT %(limit)s FOR SHARE OF j SKIP LOCKED FOR UPDATE OF b SKIP LOCKED
)
UPDATE tidemill.batch b SET state = CASE WHEN b.seqs IS NULL THEN 'cancelled' ELSE 'done' END,
    cancelled = b.cancelled + b.open, open = 0, closed_at = tidemill.now(),
    seqs = CASE WHEN b.seqs IS NULL THEN NULL ELSE '{}'::bigint[] END
FROM condemned WHERE b.id = condemned.id
RETURNING b.id, b.job_id, condemned.seqs

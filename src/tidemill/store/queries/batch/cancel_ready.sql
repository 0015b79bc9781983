-- ready -> cancelled: cancel ready batches of jobs with intent cancel or fail. The caller repeats it until nothing is
-- left. A flush or a chunk that commits late leaves a ready batch, which the next call cancels. Lists become empty and
-- done; few are cancelled per call because each of their items needs an outcome. There is no ORDER BY, so that a call
-- reads only the rows it changes, and SKIP LOCKED, so that it never waits. It also locks the job's row, because a
-- concurrent reprocess may reopen the job. Index: job_runnable, batch_claim.
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

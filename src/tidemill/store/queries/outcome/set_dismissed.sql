-- Dismiss a chunk of the failed items of a job, or restore dismissed ones. Items that already have this state are not
-- found. Index: outcome_exception, outcome_pkey, job_pkey.
WITH chosen AS (
    SELECT o.seq FROM tidemill.outcome o JOIN tidemill.job j ON j.id = o.job_id
    WHERE o.job_id = %(job_id)s AND o.status = 'failed' AND o.seq > %(after_seq)s
      AND (o.dismissed_at IS NULL) = %(dismiss)s
      AND (%(seqs)s::bigint[] IS NULL OR o.seq = ANY(%(seqs)s)) AND o.seq <> ALL(%(but)s::bigint[])
      AND (%(codes)s::text[] IS NULL OR o.error->>'code' = ANY(%(codes)s))
      AND (%(category)s::text IS NULL OR tidemill.failure_category(j.kind, j.params, o.error->>'code') = %(category)s)
      AND (%(group)s::text IS NULL OR %(group)s = ANY(tidemill.failure_groups(j.kind, o.error)))
      AND (%(since)s::timestamptz IS NULL OR o.updated_at >= %(since)s)
      AND (%(until)s::timestamptz IS NULL OR o.updated_at < %(until)s)
    ORDER BY o.seq LIMIT %(limit)s FOR UPDATE OF o
)
UPDATE tidemill.outcome o SET dismissed_at = CASE WHEN %(dismiss)s THEN tidemill.now() END,
    dismissed_by = CASE WHEN %(dismiss)s THEN %(user_id)s::bigint END
FROM chosen c WHERE o.job_id = %(job_id)s AND o.seq = c.seq
RETURNING o.seq

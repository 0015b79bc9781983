-- terminal -> pending, a chunk at a time; a second call finds none of them. Index: outcome_exception, outcome_pkey.
WITH chosen AS (
    SELECT seq, status, error->>'code' AS code FROM tidemill.outcome
    WHERE job_id = %(job_id)s AND seq > %(after_seq)s AND status = ANY(%(statuses)s)
      AND (%(reset_attempts)s OR attempts < %(max_attempts)s)
      AND (%(seqs)s::bigint[] IS NULL OR seq = ANY(%(seqs)s))
      AND seq <> ALL(%(but)s::bigint[])
      AND (%(codes)s::text[] IS NULL OR error->>'code' = ANY(%(codes)s))
      AND (%(since)s::timestamptz IS NULL OR updated_at >= %(since)s)
      AND (%(until)s::timestamptz IS NULL OR updated_at < %(until)s)
    ORDER BY seq LIMIT %(limit)s FOR UPDATE
)
UPDATE tidemill.outcome o SET status = 'pending', updated_at = greatest(o.updated_at, tidemill.now()),
    attempts = CASE WHEN %(reset_attempts)s THEN 0 ELSE o.attempts END
FROM chosen c WHERE o.job_id = %(job_id)s AND o.seq = c.seq
RETURNING o.seq, c.status, c.code

-- terminal -> pending, one chunk at a time; a second call does not find these items again. A dismissal is removed.
-- Without a reset of attempts, failures with a permanent error stay. Index: outcome_exception, outcome_pkey; job_pkey.
WITH owning AS (
    SELECT kind, params FROM tidemill.job WHERE id = %(job_id)s
), chosen AS (
    SELECT seq, status, error->>'code' AS code, tidemill.further_codes(error) AS further_codes FROM tidemill.outcome
    WHERE job_id = %(job_id)s AND seq > %(after_seq)s AND status = ANY(%(statuses)s)
      AND (%(reset_attempts)s OR status <> 'failed' OR coalesce((error->>'retryable')::boolean, false))
      AND (%(seqs)s::bigint[] IS NULL OR seq = ANY(%(seqs)s))
      AND seq <> ALL(%(but)s::bigint[])
      AND (%(codes)s::text[] IS NULL OR (status = 'failed' AND error->>'code' = ANY(%(codes)s)))
      AND (%(category)s::text IS NULL OR tidemill.failure_category(
          (SELECT kind FROM owning), (SELECT params FROM owning), error->>'code') = %(category)s)
      AND (%(group)s::text IS NULL OR %(group)s = ANY(tidemill.failure_groups((SELECT kind FROM owning), error)))
      AND (%(with_dismissed)s OR dismissed_at IS NULL)
      AND (%(since)s::timestamptz IS NULL OR updated_at >= %(since)s)
      AND (%(until)s::timestamptz IS NULL OR updated_at < %(until)s)
    ORDER BY seq LIMIT %(limit)s FOR UPDATE
)
UPDATE tidemill.outcome o SET status = 'pending', dismissed_at = NULL, dismissed_by = NULL,
    updated_at = greatest(o.updated_at, tidemill.now()),
    attempts = CASE WHEN %(reset_attempts)s THEN 0 ELSE o.attempts END,
    error = CASE WHEN %(reset_attempts)s THEN (jsonb_build_object('attempt', o.attempts) || o.error::jsonb)::json ELSE o.error END
FROM chosen c WHERE o.job_id = %(job_id)s AND o.seq = c.seq
RETURNING o.seq, c.status, c.code, c.further_codes

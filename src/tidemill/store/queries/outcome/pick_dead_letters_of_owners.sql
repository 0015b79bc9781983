-- List dead letters of some owners before a cursor, newest first. Reads at most `each` per owner. If an owner has more,
-- the page ends at the last one read (the horizon), because older rows of that owner are missing. Index:
-- outcome_dead_letter, job_pkey.
WITH seen AS MATERIALIZED (
    SELECT d.*, row_number() OVER (PARTITION BY w.owner_id ORDER BY d.updated_at DESC, d.job_id DESC, d.seq DESC) AS n
    FROM unnest(%(owners)s::bigint[]) AS w(owner_id)
    CROSS JOIN LATERAL (
        SELECT o.updated_at, o.job_id, o.seq, o.error FROM tidemill.outcome o
        WHERE o.status = 'failed' AND o.dismissed_at IS NULL AND o.owner_id = w.owner_id
          AND (o.updated_at, o.job_id, o.seq) < (%(at)s, %(job)s, %(seq)s) AND o.updated_at >= %(from)s
        ORDER BY o.updated_at DESC, o.job_id DESC, o.seq DESC LIMIT %(each)s
    ) d
), horizon AS (
    SELECT updated_at, job_id, seq FROM seen WHERE n = %(each)s ORDER BY updated_at DESC, job_id DESC, seq DESC LIMIT 1
), page AS (
    SELECT s.updated_at, s.job_id, s.seq, j.kind, s.error,
        tidemill.failure_category(j.kind, j.params, s.error->>'code') AS category
    FROM seen s JOIN tidemill.job j ON j.id = s.job_id
    WHERE (%(kind)s::text IS NULL OR j.kind = %(kind)s)
      AND (%(codes)s::text[] IS NULL OR s.error->>'code' = ANY(%(codes)s))
      AND (%(category)s::text IS NULL
           OR tidemill.failure_category(j.kind, j.params, s.error->>'code') = %(category)s)
      AND (%(group)s::text IS NULL OR %(group)s = ANY(tidemill.failure_groups(j.kind, s.error)))
      AND NOT EXISTS (SELECT 1 FROM horizon h WHERE (s.updated_at, s.job_id, s.seq) < (h.updated_at, h.job_id, h.seq))
    ORDER BY s.updated_at DESC, s.job_id DESC, s.seq DESC LIMIT %(limit)s
)
SELECT p.job_id, p.seq, p.updated_at, p.kind, p.category, p.error->>'code' AS code,
    coalesce((p.error->>'retryable')::boolean, false) AS is_retryable,
    CASE WHEN %(with_patterns)s THEN tidemill.failure_causes(p.kind, p.error) END AS causes, false AS is_end
FROM page p
UNION ALL
SELECT h.job_id, h.seq, h.updated_at, NULL, NULL, NULL, NULL, NULL, true FROM horizon h
ORDER BY is_end, updated_at DESC, job_id DESC, seq DESC

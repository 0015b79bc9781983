-- List dead letters of some jobs, dismissed or not, before a cursor, newest first. Reads at most `each` per job. If a
-- job has more, the page ends at the last one read (the horizon), because older rows of that job are missing. Index:
-- outcome_exception, job_pkey.
WITH seen AS MATERIALIZED (
    SELECT d.*, row_number() OVER (PARTITION BY d.job_id ORDER BY d.updated_at DESC, d.seq DESC) AS n
    FROM unnest(%(job_ids)s::uuid[]) AS w(job_id)
    CROSS JOIN LATERAL (
        SELECT o.updated_at, o.job_id, o.seq, o.error
        FROM tidemill.outcome o
        -- The same order as (updated_at, job_id, seq), in a form that the index supports. Dismissed items do not use up
        -- the limit: they would hide the others.
        WHERE o.job_id = w.job_id AND o.status = 'failed' AND o.updated_at >= %(from)s
          AND (o.dismissed_at IS NOT NULL) = %(dismissed)s
          AND (o.updated_at, o.seq) < (%(at)s, CASE WHEN w.job_id < %(job)s THEN 9223372036854775807
                                                    WHEN w.job_id = %(job)s THEN %(seq)s ELSE -1 END)
        ORDER BY o.updated_at DESC, o.seq DESC LIMIT %(each)s
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

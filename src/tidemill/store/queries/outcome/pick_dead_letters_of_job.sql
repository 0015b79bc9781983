-- List dead letters of a job before a cursor, newest first. Reads at most `each` of them. Index: outcome_exception,
-- job_pkey.
WITH seen AS MATERIALIZED (
    SELECT d.*, row_number() OVER (ORDER BY d.updated_at DESC, d.seq DESC) AS n
    FROM (
        SELECT o.updated_at, o.job_id, o.seq, o.error->>'code' AS code FROM tidemill.outcome o
        WHERE o.job_id = %(job_id)s AND o.status = 'failed' AND (o.updated_at, o.seq) < (%(at)s, %(seq)s)
          AND o.updated_at >= %(from)s
        ORDER BY o.updated_at DESC, o.seq DESC LIMIT %(each)s
    ) d
), horizon AS (
    SELECT updated_at, job_id, seq FROM seen WHERE n = %(each)s ORDER BY updated_at DESC, job_id DESC, seq DESC LIMIT 1
), page AS (
    SELECT s.updated_at, s.job_id, s.seq FROM seen s JOIN tidemill.job j ON j.id = s.job_id
    WHERE (%(kind)s::text IS NULL OR j.kind = %(kind)s) AND (%(codes)s::text[] IS NULL OR s.code = ANY(%(codes)s))
      AND NOT EXISTS (SELECT 1 FROM horizon h WHERE (s.updated_at, s.job_id, s.seq) < (h.updated_at, h.job_id, h.seq))
    ORDER BY s.updated_at DESC, s.job_id DESC, s.seq DESC LIMIT %(limit)s
)
SELECT p.job_id, p.seq, p.updated_at, false AS is_end FROM page p
UNION ALL
SELECT h.job_id, h.seq, h.updated_at, true FROM horizon h
ORDER BY is_end, updated_at DESC, job_id DESC, seq DESC

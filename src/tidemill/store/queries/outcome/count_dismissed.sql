-- Count dismissed items by category, at most `limit` of them. Index: outcome_dismissed, job_pkey.
SELECT tidemill.failure_category(j.kind, j.params, d.code) AS category, count(*) AS items FROM (
    SELECT o.job_id, o.error->>'code' AS code FROM tidemill.outcome o
    WHERE o.dismissed_at IS NOT NULL
      AND (%(owner_id)s::bigint IS NULL OR o.owner_id = %(owner_id)s)
      AND (%(job_id)s::uuid IS NULL OR o.job_id = %(job_id)s)
      AND (%(kind)s::text IS NULL OR EXISTS (
          SELECT FROM tidemill.job j WHERE j.id = o.job_id AND j.kind = %(kind)s))
    LIMIT %(limit)s
) d JOIN tidemill.job j ON j.id = d.job_id
GROUP BY 1

-- The number of a job's dismissed rows per error code. A row with several errors counts once for each code. Index:
-- outcome_job_dismissed.
SELECT c.code, count(*) FROM tidemill.outcome o
CROSS JOIN LATERAL unnest(ARRAY[o.error->>'code'] || tidemill.further_codes(o.error)) AS c(code)
WHERE o.job_id = %(job_id)s AND o.dismissed_at IS NOT NULL AND c.code IS NOT NULL
GROUP BY c.code

-- A window of a job's outcomes in order; results as text, which the writer decodes. Index: outcome_pkey.
SELECT seq, status, result::text, error::text, attempts, NULL AS input FROM tidemill.outcome
WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s ORDER BY seq

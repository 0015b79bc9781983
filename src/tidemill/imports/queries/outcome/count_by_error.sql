-- The number of a job's failed rows per error code. A row with several errors counts once for each code: the counters
-- of first errors and of further errors are added. Index: job_tally_pkey, batch_unfolded.
SELECT one.code, sum(one.n::bigint)::bigint AS n
FROM (
    SELECT codes, further_codes FROM tidemill.job_tally WHERE job_id = %(job_id)s
    UNION ALL SELECT codes, further_codes FROM tidemill.batch
    WHERE job_id = %(job_id)s AND NOT folded AND (codes IS NOT NULL OR further_codes IS NOT NULL)
) part
CROSS JOIN LATERAL (
    SELECT * FROM jsonb_each_text(coalesce(part.codes, '{}')) UNION ALL SELECT * FROM jsonb_each_text(coalesce(part.further_codes, '{}'))
) AS one(code, n)
GROUP BY one.code HAVING sum(one.n::bigint) > 0

-- Return kind, category and error code of some failed items of an owner, or of all owners. Index: outcome_pkey,
-- job_pkey.
SELECT o.job_id, o.seq, j.kind, tidemill.failure_category(j.kind, j.params, o.error->>'code') AS category,
    o.error->>'code' AS code, coalesce((o.error->>'retryable')::boolean, false) AS is_retryable
FROM unnest(%(job_ids)s::uuid[], %(seqs)s::bigint[]) AS asked(job_id, seq)
JOIN tidemill.job j ON j.id = asked.job_id AND (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s)
CROSS JOIN LATERAL (
    SELECT * FROM tidemill.outcome o WHERE o.job_id = asked.job_id AND o.seq = asked.seq AND o.status = 'failed' LIMIT 1
) o

-- For each distribution: the number of generated and reused files, and the first failed input.
-- Indexes: delivery_job, outcome_exception.
SELECT j.id, coalesce(d.generated, 0)::bigint, coalesce(d.reused, 0)::bigint, f.seq, f.error->>'reason'
FROM unnest(%(ids)s::uuid[]) AS j(id)
LEFT JOIN LATERAL (
    SELECT sum(generated) AS generated, sum(reused) AS reused FROM tidemill.delivery WHERE job_id = j.id
) d ON true
LEFT JOIN LATERAL (
    SELECT seq, error FROM tidemill.outcome WHERE job_id = j.id AND status = 'failed' ORDER BY updated_at, seq LIMIT 1
) f ON true

-- Return some dead letters with their jobs, newest first. Index: outcome_pkey, item_pkey, job_pkey, item_fix_pkey.
SELECT o.job_id, o.seq, o.job_id || ':' || o.seq AS id, j.key AS job_key, j.kind, j.owner_id, o.status, o.attempts,
    o.updated_at, o.error, o.duration_ms, f.rev, s.summary AS input_summary, o.dismissed_at, o.dismissed_by,
    tidemill.failure_category(j.kind, j.params, o.error->>'code') AS category
FROM unnest(%(job_ids)s::uuid[], %(seqs)s::bigint[]) AS asked(job_id, seq)
JOIN tidemill.job j ON j.id = asked.job_id
CROSS JOIN LATERAL (
    SELECT * FROM tidemill.outcome o WHERE o.job_id = asked.job_id AND o.seq = asked.seq AND o.status = 'failed' LIMIT 1
) o
CROSS JOIN LATERAL (SELECT i.input FROM tidemill.item i WHERE i.job_id = asked.job_id AND i.seq = asked.seq LIMIT 1) i
LEFT JOIN LATERAL (
    SELECT f.rev, f.input FROM tidemill.item_fix f WHERE f.job_id = o.job_id AND f.seq = o.seq ORDER BY f.rev DESC LIMIT 1
) f ON true
CROSS JOIN LATERAL tidemill.summed_up(coalesce(f.input, i.input)) s
ORDER BY o.updated_at DESC, o.job_id DESC, o.seq DESC

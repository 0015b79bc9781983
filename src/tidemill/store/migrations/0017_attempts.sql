-- The attempts of an item that was retried or failed, and the traceback of the last one. Lists of items do not read them.
ALTER TABLE tidemill.outcome ADD COLUMN details jsonb;
CREATE OR REPLACE VIEW tidemill.item_status AS
SELECT i.job_id, i.seq, i.job_id || ':' || i.seq AS id, j.owner_id, j.kind,
    CASE
        WHEN o.status IN ('pending', 'retry_wait') THEN CASE WHEN l.state = 'leased' THEN 'processing' ELSE o.status END
        WHEN o.status IS NOT NULL THEN o.status
        WHEN r.state = 'leased' THEN 'processing'
        WHEN r.state = 'ready' THEN 'pending'
        WHEN r.state = 'cancelled' THEN 'cancelled'
        WHEN j.sparse THEN 'done'
    END AS status,
    coalesce(o.attempts, 0) AS attempts,
    coalesce(CASE WHEN l.state = 'leased' THEN l.worker END, CASE WHEN r.state = 'leased' THEN r.worker END) AS locked_by,
    coalesce(CASE WHEN l.state = 'leased' THEN l.since END, CASE WHEN r.state = 'leased' THEN r.since END) AS locked_at,
    greatest(o.updated_at, l.since, r.since, r.closed_at, i.at) AS updated_at,
    i.input, i.defect, o.result, o.normalized, o.error, o.duration_ms, coalesce(l.id, r.id) AS batch_id,
    o.details
FROM tidemill.item i
JOIN tidemill.job j ON j.id = i.job_id
-- LIMIT 1 on every side makes the planner look up one row per item and never join a whole job.
LEFT JOIN LATERAL (
    SELECT * FROM tidemill.outcome o WHERE o.job_id = i.job_id AND o.seq = i.seq LIMIT 1
) o ON true
LEFT JOIN LATERAL (
    SELECT b.id, b.state, b.worker, b.since FROM tidemill.batch b
    WHERE b.job_id = i.job_id AND b.seqs IS NOT NULL AND b.state IN ('ready', 'leased')
      AND b.lo <= i.seq AND b.hi > i.seq AND b.seqs @> ARRAY[i.seq]
      AND o.status IN ('pending', 'retry_wait')
    ORDER BY b.id LIMIT 1
) l ON true
-- Live ranges do not overlap: either the first range that ends after the item covers it, or none does.
LEFT JOIN LATERAL (
    SELECT next.* FROM (
        SELECT b.id, b.state, b.worker, b.since, b.closed_at, b.lo FROM tidemill.batch b
        WHERE b.job_id = i.job_id AND b.seqs IS NULL AND b.state <> 'done' AND b.hi > i.seq AND o.seq IS NULL
        ORDER BY b.hi LIMIT 1
    ) next WHERE next.lo <= i.seq
) r ON true;

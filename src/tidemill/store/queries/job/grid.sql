-- Return what lists of a job's items need: the number of items, the flags that decide their statuses, and the result
-- columns; for a job without results also its first readable input. By id or key. Index: job_pkey, job_key_key,
-- item_pkey.
SELECT j.id, j.owner_id, j.kind, j.sparse, j.purged_at IS NOT NULL AS purged, coalesce(g.next_seq, 0) AS total,
    j.result_columns, CASE WHEN j.result_columns = '{}' THEN (
        SELECT i.input::text FROM tidemill.item i WHERE i.job_id = j.id AND i.seq < 100 AND i.defect IS NULL
        ORDER BY i.seq LIMIT 1
    ) END AS first_input
FROM tidemill.job j LEFT JOIN tidemill.ingest g ON g.job_id = j.id
WHERE j.id = (SELECT coalesce(%(id)s::uuid, (SELECT k.id FROM tidemill.job k WHERE k.key = %(key)s)))

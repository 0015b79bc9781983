-- Stores rows that an undo or redo does not reverse, with the key of each. Index: undo_log_pkey.
WITH n AS MATERIALIZED ({logged})
INSERT INTO tidemill.undo_exception (job_id, operation_id, status, code, reason, key)
SELECT %(job_id)s, %(operation_id)s, %(status)s, x.code, x.reason, {key}
FROM n JOIN unnest(%(ords)s::bigint[], %(codes)s::text[], %(reasons)s::text[]) AS x (ord, code, reason) USING (ord)
ORDER BY n.ord

-- Records rows that an undo or redo inserts again. hash_written adds the hashes. Index: undo_log_pkey.
WITH n AS MATERIALIZED ({logged})
INSERT INTO tidemill.undo_log (job_id, operation_id, is_undo, action, layout, row_count, live_count, keys)
SELECT %(job_id)s, %(operation_id)s, %(is_undo)s, 'insert', %(layout)s, count(*), count(*), {keys}
FROM (SELECT * FROM n ORDER BY ord) old HAVING count(*) > 0 RETURNING id

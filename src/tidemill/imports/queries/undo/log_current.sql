-- Records the content of rows before an undo or redo changes them. Index: the unique index of the key.
WITH n AS MATERIALIZED ({logged}),
old AS (SELECT {key_texts}, {image_texts} FROM n JOIN {table} t ON {match} ORDER BY n.ord)
INSERT INTO tidemill.undo_log (job_id, operation_id, is_undo, action, layout, row_count, live_count, keys, images)
SELECT %(job_id)s, %(operation_id)s, %(is_undo)s, %(action)s, %(layout)s, count(*), count(*), {keys}, {images}
FROM old HAVING count(*) > 0 RETURNING id

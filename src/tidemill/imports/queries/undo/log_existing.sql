-- Locks the rows that an update will change, in key order, and records their content. Returns the id of the record and
-- the rows. Index: the unique index of the key.
WITH old AS MATERIALIZED (
    SELECT n.ord, {key_texts}, {image_texts}
    FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match} WHERE {differs}
    ORDER BY n.ord FOR NO KEY UPDATE OF t
), logged AS (
    INSERT INTO tidemill.undo_log (job_id, is_undo, action, layout, row_count, live_count, keys, images)
    SELECT %(job_id)s, false, 'update', %(layout)s, count(*), count(*), {keys}, {images} FROM old HAVING count(*) > 0
    RETURNING id
)
SELECT logged.id, (SELECT array_agg(ord) FROM old) FROM logged

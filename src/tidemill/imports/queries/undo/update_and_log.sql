-- Updates existing rows that differ, by key, and records their content before and after. It returns the updated rows. A
-- row that another session has changed since this statement began has another xmin and is not updated. Index: the unique
-- index of the key.
WITH changed AS (
    UPDATE {table} t SET {sets}
    FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} b ON {match_before}
    WHERE {match} AND t.xmin = b.xmin AND {differs} RETURNING n.ord, {key_texts}, {image_texts}, {hash} AS hash
), sorted AS (
    SELECT * FROM changed ORDER BY ord
), logged AS (
    INSERT INTO tidemill.undo_log (job_id, is_undo, action, layout, row_count, live_count, keys, images, hashes)
    SELECT %(job_id)s, false, 'update', %(layout)s, count(*), count(*), {keys}, {images}, array_agg(hash)
    FROM sorted HAVING count(*) > 0
)
SELECT array_agg(ord) FROM sorted

-- Records inserted rows: their keys as PostgreSQL prints them, because texts of a file can depend on the time zone, and a
-- hash of the content that triggers and defaults gave them. Index: the unique index of the key.
WITH n AS MATERIALIZED (SELECT * FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord)),
written AS (SELECT {key_texts}, {hash} AS hash FROM n JOIN {table} t ON {match} ORDER BY n.ord)
INSERT INTO tidemill.undo_log (job_id, is_undo, action, layout, row_count, live_count, keys, hashes)
SELECT %(job_id)s, false, 'insert', %(layout)s, count(*), count(*), {keys}, array_agg(hash)
FROM written HAVING count(*) > 0 RETURNING row_count, id

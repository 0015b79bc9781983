-- Adds hashes of the content that a statement wrote to its record. Returns whether all rows have their recorded keys.
-- Index: the unique index of the key.
WITH n AS MATERIALIZED ({logged})
UPDATE tidemill.undo_log l
SET hashes = (SELECT array_agg(w.hash) FROM (SELECT {hash} AS hash FROM n JOIN {table} t ON {match} ORDER BY n.ord) w)
WHERE l.id = %(id)s RETURNING cardinality(l.hashes) = l.row_count

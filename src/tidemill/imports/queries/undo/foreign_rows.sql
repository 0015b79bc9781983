-- The number of rows that this statement's subtransaction did not write: it wrote the record as well. Index: the unique
-- index of the key.
SELECT count(*) FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match}
WHERE t.xmin <> (SELECT l.xmin FROM tidemill.undo_log l WHERE l.id = %(id)s)

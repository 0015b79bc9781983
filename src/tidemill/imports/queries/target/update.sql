-- Existing rows that differ, by their key; who was updated. Index: the unique one of the key.
UPDATE {table} t SET {sets} FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord)
WHERE {match} AND ({differs}) RETURNING n.ord

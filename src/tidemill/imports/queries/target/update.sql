-- Updates existing rows that differ, by key, and returns the updated ones. Index: the unique index of the key.
UPDATE {table} t SET {sets} FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord)
WHERE {match} AND ({differs}) RETURNING n.ord

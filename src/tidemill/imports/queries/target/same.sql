-- Rows that exist with exactly these values. Index: the unique index of the key.
SELECT n.ord FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match} WHERE NOT ({differs})

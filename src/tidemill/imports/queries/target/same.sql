-- Rows that the table has just so. Index: the unique one of the key.
SELECT n.ord FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match} WHERE NOT ({differs})

-- References without a matching row. Index: the unique index that the foreign key refers to.
SELECT n.ord FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord)
WHERE NOT EXISTS (SELECT 1 FROM {table} t WHERE {match})

-- Which of these references lead nowhere. Index: the unique one that the foreign key leads to.
SELECT n.ord FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord)
WHERE NOT EXISTS (SELECT 1 FROM {table} t WHERE {match})

-- The number of rows that have the searched values, and the key of one of them. Index: any index on these columns.
SELECT n.ord, count(*), min(t.{key}::text)
FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match} GROUP BY n.ord

-- Rows whose values another row of the table has. Index: a unique one on these columns.
SELECT n.ord FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match} WHERE ({own}) IS NOT TRUE

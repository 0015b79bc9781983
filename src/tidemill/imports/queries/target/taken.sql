-- Rows whose values exist in a row of the table with another key. Index: a unique index on these columns.
SELECT n.ord FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match} WHERE ({own}) IS NOT TRUE

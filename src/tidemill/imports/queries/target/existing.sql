-- Keys that exist in the table. Index: a unique index on these columns.
SELECT n.ord FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match}

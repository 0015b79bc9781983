-- Which of these keys the table has already. Index: a unique one on these columns.
SELECT n.ord FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match}

-- Values of a column that the table generates, as many as there are rows.
SELECT ({expression})::text FROM generate_series(1, %(count)s)

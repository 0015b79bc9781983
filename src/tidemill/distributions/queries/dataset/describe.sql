-- The columns of a declared query, without reading rows.
SELECT * FROM ({query}
) AS found LIMIT 0

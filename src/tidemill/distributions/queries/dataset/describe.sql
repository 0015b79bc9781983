-- What columns a declared query has, without looking for any of its rows.
SELECT * FROM ({query}
) AS found LIMIT 0

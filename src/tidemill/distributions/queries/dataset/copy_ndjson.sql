-- The same, an object a line. JSON has neither of these two characters in it, so nothing is ever quoted;
-- "found" without the star may be a column of the query.
COPY (SELECT row_to_json(found.*) FROM ({query}
) AS found) TO STDOUT (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')

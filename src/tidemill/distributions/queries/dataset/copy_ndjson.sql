-- Copy the rows of a declared query as NDJSON. JSON text contains neither of the two control characters, so COPY never
-- quotes it. "found.*" has a star because "found" alone may be a column of the query.
COPY (SELECT row_to_json(found.*) FROM ({query}
) AS found) TO STDOUT (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')

-- What a declared query finds, as CSV with a header. Index: as the query says.
COPY ({query}
) TO STDOUT (FORMAT csv, HEADER true)

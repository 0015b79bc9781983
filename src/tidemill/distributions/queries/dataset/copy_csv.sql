-- Copy the rows of a declared query as CSV with a header. Index: depends on the query.
COPY ({query}
) TO STDOUT (FORMAT csv, HEADER true)

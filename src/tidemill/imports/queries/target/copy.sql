-- Rows straight into the table, in key order.
COPY {table} ({columns}) FROM STDIN

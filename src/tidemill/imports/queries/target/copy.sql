-- Inserts rows, in key order.
COPY {table} ({columns}) FROM STDIN

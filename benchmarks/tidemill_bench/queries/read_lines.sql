-- The statement of a customer on one day. Index: the primary key.
SELECT line, said, amount, paid FROM tidemill_bench.lines
WHERE customer = %(customer)s AND day = %(day)s ORDER BY line

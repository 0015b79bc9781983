-- Creates the lines of each customer on one day, stored next to each other.
INSERT INTO tidemill_bench.lines (customer, line, day, said, amount, paid)
SELECT c, n, %(day)s, 'Line ' || n || ' of customer ' || c, n * 1.25, mod(n, 3) <> 0
FROM generate_series(1, %(customers)s::integer) AS c, generate_series(1, %(lines)s::integer) AS n

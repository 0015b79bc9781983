-- Two thirds of the payments of a file, with other values, so that an upsert of the file updates them.
INSERT INTO tidemill_bench.payments (id, customer, amount, fee, due, paid)
SELECT n, 'Customer ' || n, n, n / 100.0, date '2026-01-01' + n %% 365, n %% 2 = 0
FROM generate_series(0, %(n)s - 1) n WHERE n %% 3 <> 0

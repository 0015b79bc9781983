-- Counts the imported rows.
SELECT count(*) FROM tidemill_bench.payments

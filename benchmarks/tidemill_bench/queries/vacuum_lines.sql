-- Otherwise autovacuum would run during the measurement.
VACUUM (ANALYZE) tidemill_bench.lines

-- Deletes the kinds of the benchmarks.
DELETE FROM tidemill.kind WHERE name LIKE 'bench.%'

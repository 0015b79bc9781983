-- The same columns, types, checks and indexes as the engine's outcomes, without partitions.
CREATE TABLE IF NOT EXISTS tidemill_bench.outcome (LIKE tidemill.outcome INCLUDING ALL)

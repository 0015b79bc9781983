-- The same columns, types, checks and key as the engine's items, without partitions.
CREATE TABLE IF NOT EXISTS tidemill_bench.item (LIKE tidemill.item INCLUDING ALL)

-- A table whose trigger runs an action that a row names.
CREATE TABLE IF NOT EXISTS tidemill_bench.traps (n integer, action text)

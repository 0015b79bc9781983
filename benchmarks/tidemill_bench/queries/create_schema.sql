-- Baseline tables are not in Tidemill's own schema.
CREATE SCHEMA IF NOT EXISTS tidemill_bench

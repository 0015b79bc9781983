-- Removes all tables of the benchmark.
DROP SCHEMA IF EXISTS tidemill_bench CASCADE

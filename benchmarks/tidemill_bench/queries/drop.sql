-- Nothing of a benchmark stays.
DROP SCHEMA IF EXISTS tidemill_bench CASCADE

-- What is compared with stays out of Tidemill's own schema.
CREATE SCHEMA IF NOT EXISTS tidemill_bench

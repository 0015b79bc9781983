-- What ran, and that it was not changed since.
CREATE TABLE IF NOT EXISTS tidemill.migration (
    name text PRIMARY KEY, checksum text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())

-- Create the table of applied migrations and their checksums.
CREATE TABLE IF NOT EXISTS tidemill.migration (
    name text PRIMARY KEY, checksum text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())

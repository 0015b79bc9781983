-- Rows of an import wait for other rows of the file while the import still writes rows, so it must know when it last did.
ALTER TABLE tidemill.effect ADD COLUMN at timestamptz NOT NULL DEFAULT tidemill.now();

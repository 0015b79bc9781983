-- Leases that expired in a row while an item ran alone are counted, so that an item that ends its worker is found.
ALTER TABLE tidemill.batch ADD COLUMN expiries smallint NOT NULL DEFAULT 0;

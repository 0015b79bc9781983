-- Inserts a row of defaults.
INSERT INTO {table} DEFAULT VALUES

-- A row that leaves everything to its table.
INSERT INTO {table} DEFAULT VALUES

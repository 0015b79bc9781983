-- Inserts deleted rows again, complete, in key order.
WITH n AS MATERIALIZED ({logged})
INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {values} FROM n ORDER BY n.ord

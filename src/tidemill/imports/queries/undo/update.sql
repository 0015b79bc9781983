-- Gives updated rows their recorded content. Index: the unique index of the key.
WITH n AS MATERIALIZED ({logged}) UPDATE {table} t SET {sets} FROM n WHERE {match}

-- Deleted rows whose key exists again. Index: the unique index of the key.
WITH n AS MATERIALIZED ({logged}) SELECT n.ord FROM n JOIN {table} t ON {match}

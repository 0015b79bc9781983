-- Deletes inserted rows. Index: the unique index of the key.
WITH n AS MATERIALIZED ({logged}) DELETE FROM {table} t USING n WHERE {match}

-- Rows that another row refers to. Indexes: the unique index of the key, and an index of the foreign key, if it exists.
WITH n AS MATERIALIZED ({logged})
SELECT n.ord FROM n JOIN {table} t ON {match}
WHERE {changes} AND EXISTS (SELECT FROM {other} r WHERE {refers} AND {outside})

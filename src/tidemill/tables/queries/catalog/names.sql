-- Tables that could have been meant, of schemas that one may look into; those on the search path first. Reads all of pg_class.
SELECT n.nspname AS schema, c.relname AS name
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT LIKE 'pg\_%%' AND n.nspname <> ALL (%(forbidden)s)
  AND has_schema_privilege(n.oid, 'USAGE')
ORDER BY array_position(current_schemas(false), n.nspname), n.nspname, c.relname
LIMIT 5000

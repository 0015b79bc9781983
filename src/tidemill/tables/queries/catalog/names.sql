-- Tables to suggest for an unknown name, in schemas that the role can use; the search path first. Scans pg_class.
SELECT n.nspname AS schema, c.relname AS name
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT LIKE 'pg\_%%' AND n.nspname <> ALL (%(forbidden)s)
  AND has_schema_privilege(n.oid, 'USAGE')
ORDER BY array_position(current_schemas(false), n.nspname), n.nspname, c.relname
LIMIT 5000

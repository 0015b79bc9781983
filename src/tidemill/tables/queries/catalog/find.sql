-- The relation with a name, in a given schema or along the search path. Index: pg_class_relname_nsp_index.
SELECT n.nspname AS schema, c.relname AS name, c.relkind::text AS kind
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT coalesce(%(schemas)s::text[], current_schemas(false)::text[]) AS schemas) AS looked
WHERE c.relname = ANY (%(names)s::text[]) AND n.nspname = ANY (looked.schemas) AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
ORDER BY array_position(%(names)s::text[], c.relname::text), array_position(looked.schemas, n.nspname::text)
LIMIT 1

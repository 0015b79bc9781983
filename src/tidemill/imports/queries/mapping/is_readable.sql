-- Whether the tables of the remembered mappings exist and the current role may read them. No tidemill table is read,
-- because a preview also works without the schema and for a role that may read only the user's table.
SELECT count(*) = 2
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'tidemill' AND c.relname IN ('import_mapping', 'app_user')
  AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')

-- Whether the current role may delete rows of a table, and the name of the role. Index: pg_class_relname_nsp_index.
SELECT quote_ident(current_user), has_table_privilege(c.oid, 'DELETE')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s

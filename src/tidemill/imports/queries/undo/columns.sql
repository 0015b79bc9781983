-- The columns of a table in order. Index: pg_attribute_relid_attnum_index.
SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS sql_type, a.attnotnull AS not_null,
       a.attidentity = 'a' AS always_identity, a.attgenerated <> '' AS generated,
       CASE WHEN a.attidentity <> ''
            THEN format('nextval(%%L::regclass)', pg_get_serial_sequence(format('%%I.%%I', n.nspname, c.relname), a.attname))
            WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END AS "default"
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND c.relkind IN ('r', 'p')
ORDER BY a.attnum

-- Sequences that generate values of columns and that the current role may not use, and the name of the role. Indexes:
-- pg_class_relname_nsp_index, pg_depend_depender_index.
SELECT DISTINCT quote_ident(current_user) AS role, s.oid::regclass::text AS sequence
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = ANY (%(columns)s::text[]) AND NOT a.attisdropped
CROSS JOIN LATERAL (
    SELECT pg_get_serial_sequence(format('%%I.%%I', n.nspname, c.relname), a.attname)::regclass::oid AS oid
    UNION
    SELECT x.refobjid FROM pg_catalog.pg_attrdef d
    JOIN pg_catalog.pg_depend x ON x.classid = 'pg_catalog.pg_attrdef'::regclass AND x.objid = d.oid
    WHERE d.adrelid = c.oid AND d.adnum = a.attnum AND x.refclassid = 'pg_catalog.pg_class'::regclass
) used
JOIN pg_catalog.pg_class s ON s.oid = used.oid
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
  AND CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') END
ORDER BY 2

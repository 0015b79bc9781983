-- Privileges on columns of a table that the current role lacks, and other obstacles. An insert that omits a column needs
-- USAGE on the sequence in its DEFAULT. Indexes: pg_class_relname_nsp_index, pg_depend_depender_index.
WITH target AS (
    SELECT c.oid, n.oid AS schema_id, c.relkind FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(name)s
), wanted AS (
    SELECT a.attname::text AS name, p.privilege FROM target
    JOIN pg_catalog.pg_attribute a ON a.attrelid = target.oid AND a.attname = ANY (%(columns)s::text[]) AND NOT a.attisdropped
    CROSS JOIN unnest(%(privileges)s::text[]) AS p (privilege)
    WHERE NOT has_column_privilege(target.oid, a.attnum, p.privilege)
)
SELECT quote_ident(current_user) AS role,
       (SELECT has_schema_privilege(schema_id, 'USAGE') FROM target) AS may_look,
       ARRAY(SELECT privilege || ' (' || string_agg(quote_ident(name), ', ' ORDER BY name) || ')' FROM wanted GROUP BY privilege ORDER BY privilege)
           AS privileges,
       ARRAY(SELECT DISTINCT s.oid::regclass::text FROM target
             JOIN pg_catalog.pg_attrdef d ON d.adrelid = target.oid
             JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
             JOIN pg_catalog.pg_depend x ON x.classid = 'pg_catalog.pg_attrdef'::regclass AND x.objid = d.oid
             JOIN pg_catalog.pg_class s ON x.refclassid = 'pg_catalog.pg_class'::regclass AND s.oid = x.refobjid
             WHERE %(inserts)s AND a.attname <> ALL (%(columns)s::text[])
               AND CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') END) AS sequences,
       (SELECT row_security_active(oid) FROM target) AS row_security,
       %(writes)s AND current_setting('transaction_read_only')::bool AS read_only

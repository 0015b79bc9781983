-- The columns of a table in order, with domains resolved to the base type. The outermost length and DEFAULT apply, and
-- every NOT NULL. Index: pg_attribute_relid_attnum_index.
WITH RECURSIVE step AS (
    SELECT a.attnum, 0 AS depth, a.atttypid AS type_id, a.atttypmod AS typmod, false AS domain_not_null,
           CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END AS default_
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    UNION ALL
    SELECT s.attnum, s.depth + 1, t.typbasetype, CASE WHEN s.typmod >= 0 THEN s.typmod ELSE t.typtypmod END,
           s.domain_not_null OR t.typnotnull, coalesce(s.default_, pg_get_expr(t.typdefaultbin, 0))
    FROM step s JOIN pg_catalog.pg_type t ON t.oid = s.type_id AND t.typtype = 'd'
), base AS (
    SELECT DISTINCT ON (attnum) * FROM step ORDER BY attnum, depth DESC
)
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS sql_type, base.typmod,
       CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname END AS base,
       ARRAY(SELECT e.enumlabel::text FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder) AS labels,
       CASE WHEN t.typcategory = 'A' AND t.typlen = -1 AND t.typelem <> 0
            THEN CASE WHEN m.typtype = 'e' THEN 'text' WHEN m.typnamespace = 'pg_catalog'::regnamespace THEN m.typname ELSE '' END
       END AS element,
       base.default_ AS "default", a.attnotnull AS not_null, base.domain_not_null, a.attidentity::text AS identity,
       a.attgenerated <> '' AS generated, coalesce(l.collisdeterministic, true) AS deterministic
FROM base
JOIN pg_catalog.pg_class c ON c.relname = %(name)s
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = %(schema)s
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = base.attnum
JOIN pg_catalog.pg_type t ON t.oid = base.type_id
LEFT JOIN pg_catalog.pg_type m ON m.oid = t.typelem
LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
ORDER BY a.attnum

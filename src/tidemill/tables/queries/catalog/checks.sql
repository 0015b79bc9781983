-- CHECK constraints of a table and of its columns' domains (value_of is then the column that VALUE refers to).
-- PostgreSQL before 18 has no column conenforced, so it is read through jsonb.
-- Indexes: pg_constraint_conrelid_contypid_conname_index, pg_constraint_contypid_index.
WITH RECURSIVE target AS (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(name)s
), domain AS (
    SELECT a.attname, a.atttypid AS type_id FROM pg_catalog.pg_attribute a JOIN target ON target.oid = a.attrelid
    WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT d.attname, t.typbasetype FROM domain d JOIN pg_catalog.pg_type t ON t.oid = d.type_id AND t.typtype = 'd'
), found AS (
    SELECT NULL::name AS value_of, k.conname, k.conbin, k.conrelid, to_jsonb(k) AS facts
    FROM pg_catalog.pg_constraint k JOIN target ON target.oid = k.conrelid WHERE k.contype = 'c'
    UNION ALL
    SELECT d.attname, k.conname, k.conbin, 0, to_jsonb(k)
    FROM pg_catalog.pg_constraint k JOIN domain d ON d.type_id = k.contypid WHERE k.contype = 'c' AND k.contypid <> 0
)
SELECT value_of, pg_get_expr(conbin, conrelid) AS expression FROM found
WHERE facts->>'conenforced' IS DISTINCT FROM 'false' ORDER BY value_of NULLS FIRST, conname

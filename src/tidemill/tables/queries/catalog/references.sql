-- Foreign keys of a table, without the internal ones that PostgreSQL adds for partitions of the referenced table, and
-- without NOT ENFORCED and PERIOD keys (PostgreSQL 18). Index: pg_constraint_conrelid_contypid_conname_index.
SELECT rn.nspname AS schema, r.relname AS name,
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum ORDER BY u.place) AS fields,
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u (attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.attnum ORDER BY u.place) AS columns
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_constraint k ON k.conrelid = c.oid AND k.contype = 'f'
JOIN pg_catalog.pg_class r ON r.oid = k.confrelid
JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
LEFT JOIN pg_catalog.pg_constraint p ON p.oid = k.conparentid
WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND p.conrelid IS DISTINCT FROM k.conrelid
  AND to_jsonb(k)->>'conenforced' IS DISTINCT FROM 'false' AND to_jsonb(k)->>'conperiod' IS DISTINCT FROM 'true'
ORDER BY k.conname

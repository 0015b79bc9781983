-- Foreign keys that refer to a table or to its partitions, also those of the table itself, without NOT ENFORCED keys
-- (PostgreSQL 18) and without the parts of a key that PostgreSQL adds for partitions. It scans pg_constraint.
SELECT k.conname::text AS name, rn.nspname::text AS schema, r.relname::text AS table, r.oid = c.oid AS is_own,
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum ORDER BY u.place) AS columns,
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u (attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.attnum ORDER BY u.place) AS target_columns,
       ARRAY(SELECT CASE WHEN a.attcollation <> own.attcollation THEN format('%%I.%%I', cn.nspname, co.collname) END
             FROM unnest(k.conkey, k.confkey) WITH ORDINALITY AS u (own_attnum, attnum, place)
             JOIN pg_catalog.pg_attribute own ON own.attrelid = k.conrelid AND own.attnum = u.own_attnum
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.attnum
             LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
             LEFT JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace ORDER BY u.place) AS collations
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT array_agg(relid::oid) || c.oid AS oids FROM pg_catalog.pg_partition_tree(c.oid)) s
JOIN pg_catalog.pg_constraint k ON k.confrelid = ANY(s.oids) AND k.contype = 'f'
JOIN pg_catalog.pg_class r ON r.oid = k.conrelid
JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
LEFT JOIN pg_catalog.pg_constraint p ON p.oid = k.conparentid
WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND p.confrelid = ANY(s.oids) IS NOT TRUE
  AND to_jsonb(k)->>'conenforced' IS DISTINCT FROM 'false' AND to_jsonb(k)->>'conperiod' IS DISTINCT FROM 'true'
ORDER BY k.conname

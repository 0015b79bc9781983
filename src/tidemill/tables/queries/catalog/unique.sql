-- Unique indexes on plain columns, the primary key first. PostgreSQL checks the others: partial indexes, indexes on
-- expressions and WITHOUT OVERLAPS. Index: pg_index_indrelid_index.
SELECT i.indisprimary AS is_primary, i.indimmediate AS is_immediate, i.indnullsnotdistinct AS nulls_equal,
       array_agg(a.attname::text ORDER BY k.place) AS columns
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_index i ON i.indrelid = c.oid
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
  AND i.indexprs IS NULL AND NOT i.indisexclusion AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indisprimary, i.indimmediate, i.indnullsnotdistinct
ORDER BY i.indisprimary DESC, i.indexrelid

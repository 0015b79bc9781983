-- The SQL name of each type, and its catalog name; for a domain, that of its base type. Index: pg_type_oid_index.
SELECT t.oid, format_type(t.oid, NULL), coalesce(b.typname, t.typname)
FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
WHERE t.oid = ANY(%(oids)s)

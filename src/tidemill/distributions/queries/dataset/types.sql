-- Types by their numbers: as they are written, and as the catalog calls what is behind a domain. Index: pg_type_oid_index.
SELECT t.oid, format_type(t.oid, NULL), coalesce(b.typname, t.typname)
FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
WHERE t.oid = ANY(%(oids)s)

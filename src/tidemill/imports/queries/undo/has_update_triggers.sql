-- Whether a trigger can change rows during or after an UPDATE (tgtype bit: update 16). Index:
-- pg_trigger_tgrelid_tgname_index.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND t.tgtype::int & 16 = 16 AND NOT t.tgisinternal
      AND t.tgenabled IN ('O', 'A')
)

-- Whether a BEFORE INSERT row trigger of a table or of its partitions can change rows before NOT NULL and CHECK apply
-- (tgtype bits: row 1, before 2, insert 4). Index: pg_trigger_tgrelid_tgname_index.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)) part
    JOIN pg_catalog.pg_trigger t ON t.tgrelid = part.oid
    WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND t.tgtype::int & 7 = 7 AND NOT t.tgisinternal
      AND t.tgenabled IN ('O', 'A')
)

-- Whether the schema and its table of migrations exist. The catalog needs no privileges, unlike to_regclass.
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'tidemill'),
       EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'tidemill' AND c.relname = 'migration')

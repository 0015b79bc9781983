-- Settings of an export's transaction: values have the same text format on every server, no timeout ends the query, and
-- the server quickly detects a lost client. Settings that this version of PostgreSQL does not have are skipped.
SELECT set_config(s.name, wanted.value, true)
FROM (VALUES ('timezone', 'UTC'), ('datestyle', 'ISO, YMD'), ('intervalstyle', 'postgres'), ('bytea_output', 'hex'),
             ('extra_float_digits', '1'), ('statement_timeout', '0'), ('idle_in_transaction_session_timeout', '0'),
             ('transaction_timeout', '0'), ('lock_timeout', $1::text), ('tcp_keepalives_idle', '15'),
             ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3'),
             ('client_connection_check_interval', '250')
     ) AS wanted (name, value)
JOIN pg_catalog.pg_settings s ON lower(s.name) = wanted.name

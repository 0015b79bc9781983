-- For the length of a transaction: values look the same wherever they are read, nothing is ended for being slow, and the server
-- itself notices within a moment when nobody listens any more. Settings that this version does not have are passed by.
SELECT set_config(s.name, wanted.value, true)
FROM (VALUES ('timezone', 'UTC'), ('datestyle', 'ISO, YMD'), ('intervalstyle', 'postgres'), ('bytea_output', 'hex'),
             ('extra_float_digits', '1'), ('statement_timeout', '0'), ('idle_in_transaction_session_timeout', '0'),
             ('transaction_timeout', '0'), ('lock_timeout', $1::text), ('tcp_keepalives_idle', '15'),
             ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3'), ('client_connection_check_interval', '250')
     ) AS wanted (name, value)
JOIN pg_catalog.pg_settings s ON lower(s.name) = wanted.name

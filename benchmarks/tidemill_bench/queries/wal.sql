-- The bytes of write-ahead log that the server has written so far.
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8

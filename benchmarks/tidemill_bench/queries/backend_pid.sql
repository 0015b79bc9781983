-- The process of the server that serves this connection.
SELECT pg_backend_pid()

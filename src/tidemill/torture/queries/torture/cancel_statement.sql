-- Cancel the statement of one session of the run. The port proves that it belongs to a connection of the proxy.
SELECT pg_cancel_backend(pid) FROM pg_stat_activity
WHERE pid = %(pid)s AND client_port = %(port)s AND datname = current_database() AND usename = current_user

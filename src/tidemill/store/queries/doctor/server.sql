-- What of the server's settings matters: durability, and how much a bulk load may lean on it.
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'server_version_num')

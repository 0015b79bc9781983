-- The version and the settings that affect the figures.
SELECT name, current_setting(name) FROM pg_settings
WHERE name IN ('server_version', 'fsync', 'full_page_writes', 'synchronous_commit', 'shared_buffers', 'max_wal_size')

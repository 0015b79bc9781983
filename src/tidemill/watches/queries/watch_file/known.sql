-- Stored files with these paths: waiting files, and files with one of these versions. An array instead of a join:
-- without statistics for a newly filled table, the planner would compare all pairs.
-- Index: watch_file_source_path_size_version_key.
SELECT id, path, size, version, state, watch FROM tidemill.watch_file
WHERE source = %(source)s AND path = ANY(%(paths)s) AND (state = 'seen' OR version = ANY(%(versions)s))

-- What is known of these files: those that wait, and those that were here in one of these versions. By an array, not a join:
-- of a table that has just been filled the planner knows nothing, and would compare all with all.
-- Index: watch_file_source_path_size_version_key.
SELECT id, path, size, version, state, watch FROM tidemill.watch_file
WHERE source = %(source)s AND path = ANY(%(paths)s) AND (state = 'seen' OR version = ANY(%(versions)s))

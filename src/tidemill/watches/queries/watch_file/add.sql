-- Insert new files. Ignore files that another process has inserted meanwhile. Index: watch_file_waiting,
-- watch_file_source_path_size_version_key.
INSERT INTO tidemill.watch_file (watch, source, path, size, version, state, note)
SELECT %(watch)s, %(source)s, g.path, g.size, g.version, CASE WHEN g.refused IS NULL THEN 'seen' ELSE 'refused' END,
    coalesce(g.refused, g.note)
FROM unnest(%(paths)s::text[], %(sizes)s::bigint[], %(versions)s::text[], %(refusals)s::text[],
    %(notes)s::text[]) AS g(path, size, version, refused, note)
ON CONFLICT DO NOTHING

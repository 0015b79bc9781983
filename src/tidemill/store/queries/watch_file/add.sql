-- Files that nobody has seen in this version. Index: watch_file_waiting, watch_file_source_path_size_version_key.
INSERT INTO tidemill.watch_file (watch, source, path, size, version, state, note)
SELECT %(watch)s, %(source)s, g.path, g.size, g.version, CASE WHEN g.refused IS NULL THEN 'seen' ELSE 'refused' END,
    coalesce(g.refused, %(note)s)
FROM unnest(%(paths)s::text[], %(sizes)s::bigint[], %(versions)s::text[], %(refusals)s::text[])
    AS g(path, size, version, refused)
WHERE NOT EXISTS (
    SELECT 1 FROM tidemill.watch_file o WHERE o.source = %(source)s AND o.path = g.path AND o.state = 'seen')
ON CONFLICT DO NOTHING

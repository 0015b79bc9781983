-- Files that had vanished and are here again, as they were. Index: watch_file_source_path_size_version_key.
UPDATE tidemill.watch_file f SET state = 'seen', note = %(note)s, watch = %(watch)s, seen_at = tidemill.now(),
    at = tidemill.now()
FROM unnest(%(paths)s::text[], %(sizes)s::bigint[], %(versions)s::text[]) AS g(path, size, version)
WHERE f.source = %(source)s AND f.path = g.path AND f.version = g.version AND f.size IS NOT DISTINCT FROM g.size
    AND f.state = 'gone'
    AND NOT EXISTS (
        SELECT 1 FROM tidemill.watch_file o WHERE o.source = %(source)s AND o.path = g.path AND o.state = 'seen')

-- Files that wait and have changed: they wait anew, in their new version, unless that one was here before.
-- Index: watch_file_waiting, watch_file_source_path_size_version_key.
UPDATE tidemill.watch_file f SET size = g.size, version = g.version, watch = %(watch)s, note = %(note)s,
    seen_at = tidemill.now(), at = tidemill.now()
FROM unnest(%(paths)s::text[], %(sizes)s::bigint[], %(versions)s::text[]) AS g(path, size, version)
WHERE f.source = %(source)s AND f.path = g.path AND f.state = 'seen'
    AND (f.version <> g.version OR f.size IS DISTINCT FROM g.size)
    AND NOT EXISTS (
        SELECT 1 FROM tidemill.watch_file o WHERE o.source = %(source)s AND o.path = g.path AND o.version = g.version
            AND o.size IS NOT DISTINCT FROM g.size)

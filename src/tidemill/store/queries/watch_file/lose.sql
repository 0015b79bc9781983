-- Files that wait and were not listed any more. Index: watch_file_open.
UPDATE tidemill.watch_file f SET state = 'gone', note = 'it vanished before it was taken', at = tidemill.now()
WHERE f.watch = %(watch)s AND f.source = %(source)s AND f.state = 'seen' AND NOT EXISTS (
    SELECT 1 FROM unnest(%(paths)s::text[], %(versions)s::text[]) AS g(path, version)
    WHERE g.path = f.path AND g.version = f.version)

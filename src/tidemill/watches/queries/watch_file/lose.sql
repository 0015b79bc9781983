-- Files that wait and were not listed any more. NOT IN, because that is hashed: with NOT EXISTS, and an array whose length
-- nobody can guess, 10,000 files were compared with each other, 50 s. Index: watch_file_open.
UPDATE tidemill.watch_file f SET state = 'gone', note = 'it vanished before it was taken', at = tidemill.now()
WHERE f.watch = %(watch)s AND f.source = %(source)s AND f.state = 'seen' AND (f.path, f.version) NOT IN (
    SELECT g.path, g.version FROM unnest(%(paths)s::text[], %(versions)s::text[]) AS g(path, version))

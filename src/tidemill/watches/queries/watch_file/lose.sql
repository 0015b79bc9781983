-- Mark waiting files that the listing does not contain as gone. NOT IN makes the planner hash the list. NOT EXISTS
-- compared 10,000 files pairwise in 50 s, because the length of the array is unknown. Index: watch_file_open.
UPDATE tidemill.watch_file f SET state = 'gone', note = 'The file was removed before it was submitted', at = tidemill.now()
WHERE f.watch = %(watch)s AND f.source = %(source)s AND f.state = 'seen' AND (f.path, f.version) NOT IN (
    SELECT g.path, g.version FROM unnest(%(paths)s::text[], %(versions)s::text[]) AS g(path, version))

-- Files that failed wait once more; each try is a job of its own. Index: watch_file_state.
UPDATE tidemill.watch_file f SET state = 'seen', tries = tries + 1, note = %(note)s, job_id = NULL, moved_to = NULL,
    watch = %(watch)s, seen_at = 'epoch', at = tidemill.now()
FROM unnest(%(paths)s::text[], %(versions)s::text[]) AS g(path, version)
WHERE f.source = %(source)s AND f.watch = %(watch)s AND f.state = 'failed' AND f.path = g.path AND f.version = g.version
    AND NOT EXISTS (
        SELECT 1 FROM tidemill.watch_file o WHERE o.source = f.source AND o.path = f.path AND o.state = 'seen')

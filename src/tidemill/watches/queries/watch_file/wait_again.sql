-- Requeue a file that changed while it was fetched with its new version, unless that version is stored already.
-- Index: watch_file_pkey.
UPDATE tidemill.watch_file f SET state = 'seen', size = %(size)s, version = %(version)s, note = %(note)s,
    seen_at = tidemill.now(), at = tidemill.now()
WHERE id = %(id)s AND state IN ('seen', 'taken') AND NOT EXISTS (
    SELECT 1 FROM tidemill.watch_file o WHERE o.source = f.source AND o.path = f.path AND o.id <> f.id
        AND (o.state = 'seen' OR (o.version = %(version)s AND o.size IS NOT DISTINCT FROM %(size)s)))
RETURNING 1

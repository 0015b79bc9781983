-- Requeue files that changed while they waited, or that were gone and exist again, with their current version.
-- Index: watch_file_pkey.
UPDATE tidemill.watch_file f SET state = 'seen', size = g.size, version = g.version, watch = %(watch)s, note = g.note,
    seen_at = tidemill.now(), at = tidemill.now()
FROM unnest(%(ids)s::bigint[], %(sizes)s::bigint[], %(versions)s::text[], %(notes)s::text[]) AS g(id, size, version, note)
WHERE f.id = ANY(%(ids)s) AND f.id = g.id AND f.state IN ('seen', 'gone')

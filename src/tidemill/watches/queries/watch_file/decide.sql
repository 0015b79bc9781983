-- Accept or reject a held file, by its id or path. An accepted file is submitted by the next scan; it cannot wait beside
-- a newer version of itself. Returns no row if no such file is held. Index: watch_file_pkey, watch_file_state,
-- watch_file_waiting.
UPDATE tidemill.watch_file f SET state = CASE WHEN %(accepted)s THEN 'seen' ELSE 'rejected' END, accepted = %(accepted)s,
    note = %(note)s, seen_at = CASE WHEN %(accepted)s THEN 'epoch' ELSE seen_at END, at = tidemill.now()
WHERE f.watch = %(watch)s AND f.state = 'held' AND (f.id = %(id)s OR f.path = %(path)s)
    AND (NOT %(accepted)s OR NOT EXISTS (
        SELECT 1 FROM tidemill.watch_file o WHERE o.source = f.source AND o.path = f.path AND o.state = 'seen'))
RETURNING f.*

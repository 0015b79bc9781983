-- Change the state and note of a file. Returns no row if another process was first. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET state = %(state)s, note = %(note)s, at = tidemill.now()
WHERE id = %(id)s AND state = ANY(%(from)s)
RETURNING 1

-- From one state to the next, with a word on why; nobody else was quicker. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET state = %(state)s, note = %(note)s, at = tidemill.now()
WHERE id = %(id)s AND state = ANY(%(from)s)
RETURNING 1

-- Set the note of a file without changing its time of change. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET note = %(note)s WHERE id = %(id)s AND note IS DISTINCT FROM %(note)s

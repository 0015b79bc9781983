-- Why it does not get on; it stays as old as it is. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET note = %(note)s WHERE id = %(id)s AND note IS DISTINCT FROM %(note)s

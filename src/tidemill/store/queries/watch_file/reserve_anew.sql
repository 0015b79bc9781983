-- The name that was chosen is taken: another one. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET moved_to = %(moved_to)s WHERE id = %(id)s

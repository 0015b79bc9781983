-- The name that was chosen is taken: another one; or none, if the file is another one by now. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET moved_to = %(moved_to)s WHERE id = %(id)s

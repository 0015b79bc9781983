-- Change the archive path if it exists already, or clear it if a new version replaced the file. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET moved_to = %(moved_to)s WHERE id = %(id)s

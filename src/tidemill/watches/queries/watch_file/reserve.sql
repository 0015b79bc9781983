-- Set the archive path once, so that a retry continues with the same path. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET moved_to = coalesce(moved_to, %(moved_to)s) WHERE id = %(id)s RETURNING moved_to

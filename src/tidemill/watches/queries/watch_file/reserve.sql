-- Where it is to be put; chosen once, so that a second try goes on with the first. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET moved_to = coalesce(moved_to, %(moved_to)s) WHERE id = %(id)s RETURNING moved_to

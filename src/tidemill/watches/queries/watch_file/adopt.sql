-- Reassign files of a watch that is not declared any more to the watch that lists them now. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET watch = %(watch)s WHERE id = ANY(%(ids)s)

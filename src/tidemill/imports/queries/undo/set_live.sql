-- Stores which rows of a record can still be reversed. Index: undo_log_pkey.
UPDATE tidemill.undo_log SET live = %(live)s, live_count = %(live_count)s WHERE id = %(id)s

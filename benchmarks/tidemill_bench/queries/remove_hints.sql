-- Deletes the jobs that add_hints created. They have no items.
DELETE FROM tidemill.job WHERE kind = %(kind)s

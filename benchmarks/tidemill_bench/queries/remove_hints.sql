-- The jobs that were made for their hints. They have no items.
DELETE FROM tidemill.job WHERE kind = %(kind)s

-- Delete a worker that stopped normally.
DELETE FROM tidemill.worker WHERE id = %(id)s

-- List bulk operations of one user or of all, newest first. Index: operation_user, or operation_pkey backwards.
SELECT * FROM tidemill.operation
WHERE (%(user_id)s::bigint IS NULL OR user_id = %(user_id)s) AND (%(before)s::uuid IS NULL OR id < %(before)s)
ORDER BY id DESC LIMIT %(limit)s

-- Delete all sessions of a user except one. Index: session_by_user.
DELETE FROM tidemill.session
WHERE user_id = %(user_id)s
  AND family IS DISTINCT FROM (SELECT family FROM tidemill.session WHERE hash = %(hash)s)

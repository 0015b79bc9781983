-- Delete all sessions of a user. Index: session_by_user.
DELETE FROM tidemill.session WHERE user_id = %(user_id)s

-- Signed out everywhere else. Index: session_by_user.
DELETE FROM tidemill.session WHERE user_id = %(user_id)s AND hash <> %(hash)s

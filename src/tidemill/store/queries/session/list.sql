-- Browsers that a user is signed in with, and that may go on, the newest first. Index: session_by_user.
SELECT created_at, seen_at, hash = %(hash)s AS is_this FROM tidemill.session
WHERE user_id = %(user_id)s AND replaced_at IS NULL AND seen_at > tidemill.now() - %(idle)s * interval '1 second'
  AND created_at > tidemill.now() - %(longest)s * interval '1 second'
ORDER BY created_at DESC

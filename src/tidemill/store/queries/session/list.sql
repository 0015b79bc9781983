-- List the valid sessions of a user, newest first. Index: session_by_user.
SELECT s.created_at, max(s.seen_at) FILTER (WHERE s.used) AS seen_at, bool_or(s.hash = %(hash)s) AS is_this
FROM tidemill.session s LEFT JOIN tidemill.api_key k ON k.prefix = s.key_prefix
WHERE s.user_id = %(user_id)s AND s.created_at > tidemill.now() - %(longest)s * interval '1 second'
  AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > tidemill.now())
GROUP BY s.family, s.created_at
HAVING bool_or(s.replaced_at IS NULL)
  AND max(s.seen_at) FILTER (WHERE s.used) > tidemill.now() - %(idle)s * interval '1 second'
ORDER BY s.created_at DESC

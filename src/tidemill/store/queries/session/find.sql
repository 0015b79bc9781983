-- Return the session and user of a secret. The session must not be idle for too long or too old, its API key must be
-- active, and no newer secret may have been in use for more than a minute. Index: session_pkey, api_key_pkey.
SELECT u.id, u.name, u.role, s.csrf, NOT s.used AS is_first,
    s.seen_at < tidemill.now() - interval '1 minute' AS stale,
    s.replaced_at IS NULL
        AND coalesce(s.offered_at, s.issued_at) < tidemill.now() - %(rotate)s * interval '1 second' AS due
FROM tidemill.session s JOIN tidemill.app_user u ON u.id = s.user_id
LEFT JOIN tidemill.api_key k ON k.prefix = s.key_prefix
WHERE s.hash = %(hash)s AND s.seen_at > tidemill.now() - %(idle)s * interval '1 second'
  AND s.created_at > tidemill.now() - %(longest)s * interval '1 second'
  AND (s.replaced_at IS NULL OR s.replaced_at > tidemill.now() - interval '1 minute')
  AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > tidemill.now())

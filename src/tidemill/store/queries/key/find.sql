-- Return the user of an API key by its prefix, and whether the key is active. Index: api_key_pkey.
SELECT k.hash, u.id, u.name, u.role,
    k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > tidemill.now()) AS good,
    k.last_used_at IS NULL OR k.last_used_at < tidemill.now() - interval '1 minute' AS stale
FROM tidemill.api_key k JOIN tidemill.app_user u ON u.id = k.user_id WHERE k.prefix = %(prefix)s

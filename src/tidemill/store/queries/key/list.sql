-- List the API keys of one user or of all, without their secrets. Index: api_key_user.
SELECT k.prefix, k.name, k.user_id, u.name AS user_name, k.created_at, k.expires_at, k.last_used_at, k.revoked_at
FROM tidemill.api_key k JOIN tidemill.app_user u ON u.id = k.user_id
WHERE %(user_id)s::bigint IS NULL OR k.user_id = %(user_id)s ORDER BY k.created_at DESC, k.prefix

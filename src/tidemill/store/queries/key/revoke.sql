-- Revoke an API key permanently. Index: api_key_pkey.
UPDATE tidemill.api_key SET revoked_at = coalesce(revoked_at, tidemill.now())
WHERE prefix = %(prefix)s AND (%(user_id)s::bigint IS NULL OR user_id = %(user_id)s)

-- Add an API key, unless its user already has the maximum number of active keys. It expires after some seconds, or
-- never. Index: api_key_user.
INSERT INTO tidemill.api_key (prefix, hash, user_id, name, expires_at)
SELECT %(prefix)s, %(hash)s, %(user_id)s, %(name)s, tidemill.now() + %(seconds)s * interval '1 second'
WHERE %(most)s > (
    SELECT count(*) FROM tidemill.api_key
    WHERE user_id = %(user_id)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > tidemill.now())
)
RETURNING prefix, name, created_at, expires_at

-- Delete revoked and expired API keys of a user, except the most recent ones. Index: api_key_user.
DELETE FROM tidemill.api_key WHERE prefix IN (
    SELECT prefix FROM tidemill.api_key
    WHERE user_id = %(user_id)s AND (revoked_at IS NOT NULL OR expires_at <= tidemill.now())
    ORDER BY least(revoked_at, expires_at) DESC OFFSET %(kept)s
)

-- Keys of a user that are good no more, but for those that were so last. Index: api_key_user.
DELETE FROM tidemill.api_key WHERE prefix IN (
    SELECT prefix FROM tidemill.api_key
    WHERE user_id = %(user_id)s AND (revoked_at IS NOT NULL OR expires_at <= tidemill.now())
    ORDER BY least(revoked_at, expires_at) DESC OFFSET %(kept)s
)

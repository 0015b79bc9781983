-- A key's hash; it expires after so many seconds, or never.
INSERT INTO tidemill.api_key (prefix, hash, user_id, name, expires_at)
VALUES (%(prefix)s, %(hash)s, %(user_id)s, %(name)s, tidemill.now() + %(seconds)s * interval '1 second')
RETURNING prefix, name, created_at, expires_at

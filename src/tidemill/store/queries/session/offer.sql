-- Add a new secret to a session whose secret is due for rotation. Only one of two concurrent requests adds it. Index:
-- session_pkey.
WITH due AS (
    UPDATE tidemill.session SET offered_at = tidemill.now(), seen_at = tidemill.now()
    WHERE hash = %(hash)s AND replaced_at IS NULL
      AND coalesce(offered_at, issued_at) < tidemill.now() - %(rotate)s * interval '1 second'
    RETURNING user_id, csrf, created_at, family, key_prefix
)
INSERT INTO tidemill.session (hash, user_id, csrf, created_at, family, key_prefix, used)
SELECT %(offered)s, user_id, csrf, created_at, family, key_prefix, false FROM due

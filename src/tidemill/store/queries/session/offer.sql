-- Another secret for a session whose own is due: of two requests that find it so, one makes it. Index: session_pkey.
WITH due AS (
    UPDATE tidemill.session SET offered_at = tidemill.now(), seen_at = tidemill.now()
    WHERE hash = %(hash)s AND replaced_at IS NULL
      AND coalesce(offered_at, issued_at) < tidemill.now() - %(rotate)s * interval '1 second'
    RETURNING user_id, csrf, created_at, family, key_prefix
)
INSERT INTO tidemill.session (hash, user_id, csrf, created_at, family, key_prefix, used)
SELECT %(offered)s, user_id, csrf, created_at, family, key_prefix, false FROM due

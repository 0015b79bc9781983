-- Whose session a secret opens: not idle too long, not too old, not replaced more than a minute ago.
-- Index: session_pkey.
SELECT u.id, u.name, u.role, s.csrf, s.created_at,
    s.seen_at < tidemill.now() - interval '1 minute' AS stale,
    s.replaced_at IS NULL AND s.issued_at < tidemill.now() - %(rotate)s * interval '1 second' AS due
FROM tidemill.session s JOIN tidemill.app_user u ON u.id = s.user_id
WHERE s.hash = %(hash)s AND s.seen_at > tidemill.now() - %(idle)s * interval '1 second'
  AND s.created_at > tidemill.now() - %(longest)s * interval '1 second'
  AND (s.replaced_at IS NULL OR s.replaced_at > tidemill.now() - interval '1 minute')

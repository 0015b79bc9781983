-- List all users, with the number of their active API keys.
SELECT u.id, u.name, u.role, u.created_at,
    (SELECT count(*) FROM tidemill.api_key k WHERE k.user_id = u.id AND k.revoked_at IS NULL
        AND (k.expires_at IS NULL OR k.expires_at > tidemill.now())) AS keys
FROM tidemill.app_user u ORDER BY u.name

-- Return one user, by name or id. Index: app_user_name_key, app_user_pkey.
SELECT id, name, role, created_at FROM tidemill.app_user WHERE name = %(name)s OR id = %(id)s::bigint

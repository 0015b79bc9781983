-- Set limits of a user, and remove those that are not set any more. Index: app_user_pkey.
UPDATE tidemill.app_user SET quota = (quota - %(removed)s::text[]) || %(limits)s WHERE id = %(id)s

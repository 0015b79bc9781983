-- A user with keys and sessions; their jobs stay, for admins.
DELETE FROM tidemill.app_user WHERE id = %(id)s AND id <> 0

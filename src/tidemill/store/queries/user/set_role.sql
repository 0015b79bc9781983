-- A user's new role.
UPDATE tidemill.app_user SET role = %(role)s WHERE id = %(id)s

-- Set the role of a user.
UPDATE tidemill.app_user SET role = %(role)s WHERE id = %(id)s

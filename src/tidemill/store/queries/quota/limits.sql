-- Return the role of a user and the limits that are set for the user. Index: app_user_pkey.
SELECT role, quota FROM tidemill.app_user WHERE id = %(owner_id)s

-- One at a time makes keys for a user. Index: app_user_pkey.
SELECT 1 FROM tidemill.app_user WHERE id = %(id)s FOR NO KEY UPDATE

-- Lock a user, so that API keys are created one at a time. Index: app_user_pkey.
SELECT 1 FROM tidemill.app_user WHERE id = %(id)s FOR NO KEY UPDATE

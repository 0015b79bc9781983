-- Delete a user with their API keys and sessions. Their jobs stay visible to admins.
DELETE FROM tidemill.app_user WHERE id = %(id)s AND id <> 0

-- Delete a sign-in link and return its user. Index: sign_in_link_pkey.
DELETE FROM tidemill.sign_in_link WHERE hash = %(hash)s RETURNING user_id, expires_at > tidemill.now() AS good

-- A link that signs a user in, once, soon.
INSERT INTO tidemill.sign_in_link (hash, user_id, expires_at)
VALUES (%(hash)s, %(user_id)s, tidemill.now() + %(seconds)s * interval '1 second')

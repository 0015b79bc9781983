-- Add a sign-in link, which is valid once and for a short time.
INSERT INTO tidemill.sign_in_link (hash, user_id, expires_at)
VALUES (%(hash)s, %(user_id)s, tidemill.now() + %(seconds)s * interval '1 second')

-- Add the session of a browser that signed in with an API key or a sign-in link.
INSERT INTO tidemill.session (hash, user_id, csrf, key_prefix)
VALUES (%(hash)s, %(user_id)s, %(csrf)s, %(key_prefix)s)

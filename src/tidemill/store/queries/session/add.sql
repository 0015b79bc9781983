-- A browser that signed in, with this key or with a link.
INSERT INTO tidemill.session (hash, user_id, csrf, key_prefix)
VALUES (%(hash)s, %(user_id)s, %(csrf)s, %(key_prefix)s)

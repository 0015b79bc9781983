-- A browser that signed in; with ``created_at``, one whose secret is replaced.
INSERT INTO tidemill.session (hash, user_id, csrf, created_at)
VALUES (%(hash)s, %(user_id)s, %(csrf)s, coalesce(%(created_at)s, tidemill.now()))

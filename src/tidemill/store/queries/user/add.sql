-- Add a user, unless the name is taken.
INSERT INTO tidemill.app_user (name, role) VALUES (%(name)s, %(role)s) ON CONFLICT (name) DO NOTHING RETURNING id

-- A file that is about to be made is needed until then, and not longer: should its maker die, it goes all the same.
INSERT INTO tidemill.unneeded_file (file_id, made_by, at)
VALUES (%(file_id)s, %(made_by)s, tidemill.now() + make_interval(hours => %(hours)s))
ON CONFLICT (file_id) DO UPDATE SET at = EXCLUDED.at RETURNING at

-- Set when a file expires. Run before the file is written, so that the file is removed even if the process that writes
-- it dies.
INSERT INTO tidemill.unneeded_file (file_id, made_by, at)
VALUES (%(file_id)s, %(made_by)s, tidemill.now() + make_interval(hours => %(hours)s))
ON CONFLICT (file_id) DO UPDATE SET at = EXCLUDED.at RETURNING at

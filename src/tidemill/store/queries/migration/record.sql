-- This one ran.
INSERT INTO tidemill.migration (name, checksum) VALUES (%(name)s, %(checksum)s)

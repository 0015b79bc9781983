-- Record an applied migration.
INSERT INTO tidemill.migration (name, checksum) VALUES (%(name)s, %(checksum)s)

-- A message that is no hint.
INSERT INTO tidemill.quarantine (source, reason, message, size, worker)
VALUES ('received', %(reason)s, %(message)s, %(size)s, %(worker)s)

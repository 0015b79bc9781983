-- Store a message that is not a valid hint.
INSERT INTO tidemill.quarantine (source, reason, message, size, worker)
VALUES ('received', %(reason)s, %(message)s, %(size)s, %(worker)s)

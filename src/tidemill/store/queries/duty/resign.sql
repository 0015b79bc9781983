-- A worker that stops lets the next one in at once.
UPDATE tidemill.duty SET worker = NULL, until = '-infinity' WHERE worker = %(worker)s

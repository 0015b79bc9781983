-- Release the duties of a worker that stops, so that another worker can take them at once.
UPDATE tidemill.duty SET worker = NULL, until = '-infinity' WHERE worker = %(worker)s

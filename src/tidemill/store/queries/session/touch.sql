-- Update the time a session was last used, to the minute.
UPDATE tidemill.session SET seen_at = tidemill.now() WHERE hash = %(hash)s

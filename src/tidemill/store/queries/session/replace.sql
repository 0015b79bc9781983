-- The old secret of a session, once: of two requests that find it due, one replaces it.
UPDATE tidemill.session SET replaced_at = tidemill.now() WHERE hash = %(hash)s AND replaced_at IS NULL

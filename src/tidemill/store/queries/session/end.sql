-- Signed out.
DELETE FROM tidemill.session WHERE hash = %(hash)s

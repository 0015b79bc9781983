-- Return the options of a kind.
SELECT options FROM tidemill.kind WHERE name = %(name)s

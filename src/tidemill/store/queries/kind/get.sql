-- One kind's options.
SELECT options FROM tidemill.kind WHERE name = %(name)s

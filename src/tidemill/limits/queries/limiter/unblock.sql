-- A block is lifted, of a limiter and its members or of one of them; how many were blocked is how many rows.
UPDATE tidemill.limiter SET blocked_until = NULL, at = least(at, extract(epoch FROM tidemill.now()))
WHERE name = %(name)s AND (%(key)s::text IS NULL OR key = %(key)s) AND blocked_until > tidemill.now()

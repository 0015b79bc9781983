-- Remove the block of a limiter and its members, or of one member; the row count is the number of unblocked rows.
UPDATE tidemill.limiter SET blocked_until = NULL, at = least(at, extract(epoch FROM tidemill.now()))
WHERE name = %(name)s AND (%(key)s::text IS NULL OR key = %(key)s) AND blocked_until > tidemill.now()

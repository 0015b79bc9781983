-- Set the number of slots of a process. It sets the total and not a difference, because it may run twice.
-- Index: limiter_hold_pkey.
UPDATE tidemill.limiter_hold SET held = %(held)s
WHERE name = %(name)s AND key = %(key)s AND worker = %(worker)s AND child = %(child)s
  AND member = %(member)s

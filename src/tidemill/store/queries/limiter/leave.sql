-- Places that a process has no use for any more. Index: limiter_hold_pkey.
UPDATE tidemill.limiter_hold SET held = greatest(0, held - %(places)s)
WHERE name = %(name)s AND key = %(key)s AND worker = %(worker)s AND child = %(child)s

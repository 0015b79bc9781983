-- The places that are left to a process: how many, not how many fewer, since it may run twice. Index: limiter_hold_pkey.
UPDATE tidemill.limiter_hold SET held = %(held)s
WHERE name = %(name)s AND key = %(key)s AND worker = %(worker)s AND child = %(child)s
  AND member = %(member)s

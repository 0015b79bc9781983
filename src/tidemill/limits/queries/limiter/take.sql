-- Permits and places for one process, in one trip; no row where there is no such limiter. Index: limiter_pkey.
SELECT * FROM tidemill.take_permits(%(name)s, %(key)s, %(wanted)s, %(lead)s, %(reach)s,
    %(worker)s, %(child)s, %(member)s, %(places)s, %(held)s, %(idle)s, %(seconds)s)

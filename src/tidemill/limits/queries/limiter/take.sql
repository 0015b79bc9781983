-- Grant permits and slots to one process, in one round trip; no row if the limiter does not exist. Index: limiter_pkey.
SELECT * FROM tidemill.take_permits(%(name)s, %(key)s, %(wanted)s, %(lead)s, %(reach)s,
    %(worker)s, %(child)s, %(member)s, %(places)s, %(held)s, %(idle)s, %(seconds)s)

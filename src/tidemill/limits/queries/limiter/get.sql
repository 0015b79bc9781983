-- Read and lock a limiter before a change. Index: limiter_pkey.
SELECT rate, burst, concurrency, adaptive, lowest FROM tidemill.limiter WHERE name = %(name)s AND key = '' FOR UPDATE

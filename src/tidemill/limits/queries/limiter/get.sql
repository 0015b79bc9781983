-- A limiter as it is now, to be changed. Index: limiter_pkey.
SELECT rate, burst, concurrency, adaptive, lowest FROM tidemill.limiter WHERE name = %(name)s AND key = '' FOR UPDATE

-- Whether there is such a limiter, or such a member of it. Index: limiter_pkey.
SELECT EXISTS (SELECT 1 FROM tidemill.limiter WHERE name = %(name)s AND key = %(key)s)

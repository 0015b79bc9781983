-- Whether the limiter, or this member of it, exists. Index: limiter_pkey.
SELECT EXISTS (SELECT 1 FROM tidemill.limiter WHERE name = %(name)s AND key = %(key)s)

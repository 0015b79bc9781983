-- Return unused permits for the next request; expired ones are dropped then. Index: limiter_pkey.
UPDATE tidemill.limiter SET spare = spare || %(starts)s::float8[], taken = taken - cardinality(%(starts)s::float8[])
WHERE name = %(name)s AND key = %(key)s AND slack = %(slack)s

-- Permits that were not used, for whoever comes next; those whose moment passes are dropped then. Index: limiter_pkey.
UPDATE tidemill.limiter SET spare = spare || %(starts)s::float8[], taken = taken - cardinality(%(starts)s::float8[])
WHERE name = %(name)s AND key = %(key)s AND slack = %(slack)s

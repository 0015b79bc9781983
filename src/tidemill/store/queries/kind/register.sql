-- Register the kinds that a worker can run, so that submissions can be checked without the handlers' code.
INSERT INTO tidemill.kind (name, sparse, options) VALUES (%(name)s, %(sparse)s, %(options)s)
ON CONFLICT (name) DO UPDATE SET sparse = excluded.sparse, options = excluded.options, updated_at = tidemill.now()
WHERE (kind.sparse, kind.options) IS DISTINCT FROM (excluded.sparse, excluded.options)

-- Every kind that was ever registered.
SELECT name, sparse, options FROM tidemill.kind ORDER BY name

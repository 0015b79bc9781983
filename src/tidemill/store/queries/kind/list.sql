-- Every kind that was ever registered, but the built-in ones: jobs of those are not submitted by people.
SELECT name, sparse, options FROM tidemill.kind WHERE NOT starts_with(name, 'tidemill.') ORDER BY name

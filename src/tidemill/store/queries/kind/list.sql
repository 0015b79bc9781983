-- List all registered kinds, except built-in kinds, whose jobs users do not submit.
SELECT name, sparse, options FROM tidemill.kind WHERE NOT starts_with(name, 'tidemill.') ORDER BY name

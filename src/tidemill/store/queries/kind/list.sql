-- List all registered kinds, except built-in kinds, whose jobs users do not submit. The limiter
-- as text: connections of an application may load jsonb in their own way.
SELECT name, sparse, options->>'limiter' AS limiter FROM tidemill.kind WHERE NOT starts_with(name, 'tidemill.') ORDER BY name

-- List all registered kinds, except built-in kinds, whose jobs users do not submit. The limiter as text and the roles as
-- an array: connections of an application may load jsonb in their own way. Roles that workers of an older version
-- registered are NULL.
SELECT name, sparse, options->>'limiter' AS limiter,
    CASE jsonb_typeof(options->'roles') WHEN 'array' THEN ARRAY(SELECT jsonb_array_elements_text(options->'roles')) END AS roles
FROM tidemill.kind WHERE NOT starts_with(name, 'tidemill.') ORDER BY name

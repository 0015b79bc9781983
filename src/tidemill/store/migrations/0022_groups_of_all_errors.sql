-- Failed rows of imports are grouped by each of their errors, not only by the first.
-- The errors of a failure: a row of an import lists all its errors, and any other failure is one error.
CREATE FUNCTION tidemill.failure_errors(kind text, error json) RETURNS SETOF json LANGUAGE sql IMMUTABLE AS $$
    SELECT one.error FROM json_array_elements(CASE
        WHEN kind = 'tidemill.import' AND json_typeof(error->'errors') = 'array' AND error->'errors'->0 IS NOT NULL
            THEN error->'errors'
        ELSE json_build_array(error)
    END) AS one(error)
$$;

-- The groups of a failure, each once: a row of an import is in the group of each of its errors.
CREATE FUNCTION tidemill.failure_groups(kind text, error json) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(SELECT DISTINCT tidemill.failure_group(kind, one) FROM tidemill.failure_errors(kind, error) AS one)
$$;

-- The type and the message without values of each error of a failure, each pair once.
CREATE FUNCTION tidemill.failure_causes(kind text, error json) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT json_agg(json_build_array(c.type, c.pattern)) FROM (
        SELECT DISTINCT tidemill.error_type(one) AS type, tidemill.error_pattern(one) AS pattern
        FROM tidemill.failure_errors(kind, error) AS one
    ) c
$$;

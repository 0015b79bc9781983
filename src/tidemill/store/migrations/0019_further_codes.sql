-- Failed items are also counted per code of each further error, so that an import shows how many rows have an error.
-- The codes of an error's further errors: those of its list, each once, without the code of the error itself.
CREATE FUNCTION tidemill.further_codes(error json) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN json_typeof(error->'errors') = 'array' THEN ARRAY(
        SELECT DISTINCT one->>'code' FROM json_array_elements(error->'errors') AS one
        WHERE json_typeof(one->'code') = 'string' AND one->>'code' <> error->>'code'
    ) ELSE '{}' END
$$;

ALTER TABLE tidemill.job_tally ADD COLUMN further_codes jsonb NOT NULL DEFAULT '{}';
ALTER TABLE tidemill.batch ADD COLUMN further_codes jsonb;

UPDATE tidemill.job_tally t SET further_codes = s.codes FROM (
    SELECT job_id, jsonb_object_agg(code, n) AS codes FROM (
        SELECT o.job_id, one.code, count(*) AS n FROM tidemill.outcome o
        CROSS JOIN LATERAL unnest(tidemill.further_codes(o.error)) AS one(code)
        WHERE o.status = 'failed' GROUP BY 1, 2
    ) counted GROUP BY job_id
) s WHERE t.job_id = s.job_id;

-- The files of these inputs, and what day it is; a row for each that is asked for. Index: artifact_pkey.
SELECT asked.place, (tidemill.now() AT TIME ZONE 'UTC')::date AS today, a.path, a.rows, a.size, a.sha256, a.format
FROM unnest(%(datasets)s::text[], %(keys)s::text[]) WITH ORDINALITY AS asked(dataset, input_key, place)
LEFT JOIN LATERAL (
    SELECT a.path, a.rows, a.size, a.sha256, a.format FROM tidemill.artifact a
    WHERE a.dataset = asked.dataset AND a.input_key = asked.input_key LIMIT 1
) a ON true

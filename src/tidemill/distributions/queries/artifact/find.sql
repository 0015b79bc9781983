-- The file of each requested input if the same version of its dataset generated it, and the current date. Returns one row per requested input. Index: artifact_pkey.
SELECT requested.position, (tidemill.now() AT TIME ZONE 'UTC')::date AS today,
    a.path, a.rows, a.size, a.sha256, a.format
FROM unnest(%(datasets)s::text[], %(versions)s::text[], %(keys)s::text[])
    WITH ORDINALITY AS requested(dataset, version, input_key, position)
LEFT JOIN LATERAL (
    SELECT a.path, a.rows, a.size, a.sha256, a.format FROM tidemill.artifact a
    WHERE a.dataset = requested.dataset AND a.input_key = requested.input_key
      AND a.dataset_version = requested.version LIMIT 1
) a ON true

-- Record generated files from the results of their items, in the flush that settles them. Rows are in key order, so
-- that two flushes never deadlock. If two items have the same input, the later one wins. Index: artifact_pkey.
INSERT INTO tidemill.artifact (dataset, input_key, path, job_id, seq, rows, size, sha256, format, dataset_version)
SELECT DISTINCT ON (r.dataset, r.input_key)
    r.dataset, r.input_key, r.path, %(job_id)s, r.seq, r.rows, r.size, r.sha256, r.format,
    %(fingerprints)s::jsonb->>r.dataset
FROM ROWS FROM (unnest(%(seqs)s::bigint[]), jsonb_to_recordset(%(results)s::jsonb) AS (
    dataset text, input_key text, path text, rows bigint, size bigint, sha256 text, format text
)) AS r(seq, dataset, input_key, path, rows, size, sha256, format)
ORDER BY r.dataset, r.input_key, r.seq DESC
ON CONFLICT (dataset, input_key) DO UPDATE SET path = excluded.path, job_id = excluded.job_id, seq = excluded.seq,
    rows = excluded.rows, size = excluded.size, sha256 = excluded.sha256, format = excluded.format,
    made_at = excluded.made_at, dataset_version = excluded.dataset_version

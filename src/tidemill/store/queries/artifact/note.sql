-- Files that were made, from the results of their items, in the flush that settles them; in key order, so that two
-- flushes never wait for each other. Of two items that mean the same, the later one counts. Index: artifact_pkey.
INSERT INTO tidemill.artifact (dataset, input_key, path, job_id, seq, rows, size, sha256, format)
SELECT DISTINCT ON (r.dataset, r.input_key)
    r.dataset, r.input_key, r.path, %(job_id)s, given.seq, r.rows, r.size, r.sha256, r.format
FROM unnest(%(seqs)s::bigint[], %(results)s::jsonb[]) AS given(seq, result)
CROSS JOIN LATERAL jsonb_to_record(given.result) AS r(
    dataset text, input_key text, path text, rows bigint, size bigint, sha256 text, format text, reused boolean)
WHERE NOT r.reused
ORDER BY r.dataset, r.input_key, given.seq DESC
ON CONFLICT (dataset, input_key) DO UPDATE SET path = excluded.path, job_id = excluded.job_id, seq = excluded.seq,
    rows = excluded.rows, size = excluded.size, sha256 = excluded.sha256, format = excluded.format,
    made_at = excluded.made_at

-- Properties of a job that an export needs before it reads the rows. Index: job_pkey.
SELECT j.key, j.sparse, j.purged_at IS NOT NULL AS purged, coalesce(g.next_seq, 0) AS total, j.result_columns,
    j.source->>'format' AS source_format, j.closed_as IS NOT NULL AS is_closed
FROM tidemill.job j LEFT JOIN tidemill.ingest g ON g.job_id = j.id WHERE j.id = %(job_id)s

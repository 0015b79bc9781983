-- How far a job reaches, and what its items may be. Index: job_pkey.
SELECT j.id, j.owner_id, j.kind, j.sparse, j.purged_at, coalesce(g.next_seq, 0) AS total
FROM tidemill.job j LEFT JOIN tidemill.ingest g ON g.job_id = j.id WHERE j.id = %(job_id)s

-- Whether a job ended before its source was read completely. Index: job_pkey, ingest_pkey.
SELECT g.cut OR NOT j.ingest_done FROM tidemill.job j JOIN tidemill.ingest g ON g.job_id = j.id
WHERE j.id = %(job_id)s AND j.closed_as IS NOT NULL

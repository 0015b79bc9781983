-- Whether a job was ended before its source was: there is more to read. Index: job_pkey, ingest_pkey.
SELECT g.cut OR NOT j.ingest_done FROM tidemill.job j JOIN tidemill.ingest g ON g.job_id = j.id
WHERE j.id = %(job_id)s AND j.closed_as IS NOT NULL

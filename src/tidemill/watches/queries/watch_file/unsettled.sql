-- Files that wait for their job or for the archive, with the state of the job. Index: watch_file_open, job_pkey.
SELECT f.*, j.id IS NOT NULL AS has_job, coalesce(j.ingest_done, false) AS ingest_done, j.closed_as, j.failure_reason
FROM tidemill.watch_file f LEFT JOIN tidemill.job j ON j.id = f.job_id
WHERE f.watch = %(watch)s AND f.id > %(after)s AND f.state IN ('submitted', 'persisted', 'rejected')
ORDER BY f.id LIMIT %(limit)s

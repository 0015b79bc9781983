-- Record how much of a source is downloaded, and extend the lease, unless the job must not run. Index: ingest_pkey.
UPDATE tidemill.ingest g SET fetched_bytes = %(fetched_bytes)s, fetch_total_bytes = %(total_bytes)s,
    lease_until = tidemill.now() + %(lease)s * interval '1 second'
FROM tidemill.job j
WHERE g.job_id = %(job_id)s AND g.lease_id = %(lease_id)s AND j.id = g.job_id AND j.intent = 'run' AND j.closed_as IS NULL

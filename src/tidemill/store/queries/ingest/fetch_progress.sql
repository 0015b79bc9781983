-- How much of the source of a job is downloaded; no row if it has no URL. Index: ingest_pkey, job_pkey.
SELECT NOT g.fetch_pending AS is_complete,
    coalesce(g.fetch_pending AND g.lease_until >= tidemill.now(), false) AS is_active,
    coalesce(g.fetched_bytes, 0) AS bytes, g.fetch_total_bytes AS total_bytes
FROM tidemill.ingest g JOIN tidemill.job j ON j.id = g.job_id WHERE g.job_id = %(job_id)s AND j.source ? 'url'

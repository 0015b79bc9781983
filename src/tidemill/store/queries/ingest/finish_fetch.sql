-- Record that a source is stored: it can be read now. Index: ingest_pkey.
UPDATE tidemill.ingest SET fetch_pending = false, lease_id = NULL, lease_until = NULL, worker = NULL,
    fetched_bytes = coalesce(%(fetched_bytes)s, fetched_bytes),
    fetch_total_bytes = coalesce(%(fetched_bytes)s, fetch_total_bytes)
WHERE job_id = %(job_id)s AND lease_id = %(lease_id)s

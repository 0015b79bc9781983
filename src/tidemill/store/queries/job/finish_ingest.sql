-- Record that the source is read completely and the total is known.
UPDATE tidemill.job SET ingest_done = true, updated_at = tidemill.now() WHERE id = %(job_id)s

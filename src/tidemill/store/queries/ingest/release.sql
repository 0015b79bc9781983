-- Release the ingest lease. The checkpoint stays.
UPDATE tidemill.ingest SET lease_id = NULL, lease_until = NULL, worker = NULL
WHERE job_id = %(job_id)s AND lease_id = %(lease_id)s

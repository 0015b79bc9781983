-- A closed job's source is read by nobody.
UPDATE tidemill.ingest SET lease_id = NULL, lease_until = NULL, worker = NULL WHERE job_id = %(job_id)s

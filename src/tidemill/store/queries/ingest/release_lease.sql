-- Release the ingest lease of a dead child process, found by its lease alone: few rows have a lease.
UPDATE tidemill.ingest SET lease_id = NULL, lease_until = NULL, worker = NULL, losses = least(losses + %(losses)s, 1000)
WHERE worker = %(worker)s AND lease_id = %(lease_id)s
RETURNING job_id, losses

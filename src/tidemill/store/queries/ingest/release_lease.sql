-- A parent gives back what a dead child held, by the lease alone: a handful of rows.
UPDATE tidemill.ingest SET lease_id = NULL, lease_until = NULL, worker = NULL, losses = least(losses + %(losses)s, 1000)
WHERE worker = %(worker)s AND lease_id = %(lease_id)s
RETURNING job_id, losses

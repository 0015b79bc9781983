-- Clear the idempotency key of a job that created nothing, so that it can be used again. Index: job_pkey.
UPDATE tidemill.job SET idem_key = NULL WHERE id = %(job_id)s AND idem_key = %(idem_key)s

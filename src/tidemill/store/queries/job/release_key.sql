-- The idempotency key of a job that came to nothing is free again. Index: job_pkey.
UPDATE tidemill.job SET idem_key = NULL WHERE id = %(job_id)s AND idem_key = %(idem_key)s

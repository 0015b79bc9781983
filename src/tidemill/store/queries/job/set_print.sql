-- Store the fingerprint of a submission with an idempotency key, after all its rows were read.
UPDATE tidemill.job SET idem_print = %(print)s WHERE id = %(job_id)s

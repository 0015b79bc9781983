-- What an idempotency key stands for, once every row of the submission was seen.
UPDATE tidemill.job SET idem_print = %(print)s WHERE id = %(job_id)s

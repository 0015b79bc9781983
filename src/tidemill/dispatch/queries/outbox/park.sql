-- Move a hint that the broker rejected repeatedly to the quarantine. Index: outbox_pkey.
WITH parked AS (DELETE FROM tidemill.outbox WHERE id = %(id)s AND claimed_by = %(worker)s RETURNING job_id, attempts)
INSERT INTO tidemill.quarantine (source, reason, message, size, job_id, worker)
SELECT 'refused', %(reason)s, %(message)s, %(size)s, job_id, %(worker)s FROM parked

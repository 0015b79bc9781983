-- The source is read to its end: what was held until then is due. Index: batch_claim.
UPDATE tidemill.batch SET not_before = tidemill.now()
WHERE job_id = %(job_id)s AND state = 'ready' AND not_before = timestamptz '2999-01-01'

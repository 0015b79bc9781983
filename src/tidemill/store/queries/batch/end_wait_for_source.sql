-- Make the ready batches of a job due when its source, whose end they waited for, is read completely. Index:
-- batch_claim, ingest_pkey.
UPDATE tidemill.batch b SET not_before = tidemill.now()
FROM tidemill.ingest g
WHERE g.job_id = %(job_id)s AND g.rows_wait_for_end AND b.job_id = %(job_id)s AND b.state = 'ready' AND NOT b.retrying

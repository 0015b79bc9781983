-- Close a job that has no open items, until a reprocess opens it. Ends its ingest lease and adds its last progress
-- sample, which is the only sample of a short job. Index: job_pkey, ingest_pkey, job_sample_pkey.
WITH reader AS (
    UPDATE tidemill.ingest SET lease_id = NULL, lease_until = NULL, worker = NULL WHERE job_id = %(job_id)s
), sample AS (
    INSERT INTO tidemill.job_sample (job_id, at, settled, failed)
    VALUES (%(job_id)s, tidemill.now(), %(settled)s, %(failed)s)
    ON CONFLICT (job_id, at) DO NOTHING
)
UPDATE tidemill.job SET closed_as = %(closed_as)s, closed_at = tidemill.now(), updated_at = tidemill.now()
WHERE id = %(job_id)s
RETURNING closed_at

-- Of a source whose rows must wait for its end, every ready batch waits until that is read, or nobody will read on, and is
-- due then. Index: batch_claim, ingest_pkey, job_pkey.
UPDATE tidemill.batch b
SET not_before = CASE WHEN j.ingest_done THEN tidemill.now() ELSE timestamptz '2999-01-01' END
FROM tidemill.ingest g JOIN tidemill.job j ON j.id = g.job_id
WHERE g.job_id = %(job_id)s AND g.held AND b.job_id = %(job_id)s AND b.state = 'ready'
  AND (b.not_before = timestamptz '2999-01-01') = j.ingest_done

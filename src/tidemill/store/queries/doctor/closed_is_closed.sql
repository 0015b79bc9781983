-- 7. A closed job has no open batch, and no worker ingests its source.
SELECT j.id AS job_id, j.closed_as, g.lease_id AS ingest_lease FROM tidemill.job j
LEFT JOIN tidemill.ingest g ON g.job_id = j.id
WHERE j.closed_as IS NOT NULL AND (%(job_id)s::uuid IS NULL OR j.id = %(job_id)s)
  AND (g.lease_id IS NOT NULL OR EXISTS (
      SELECT 1 FROM tidemill.batch b WHERE b.job_id = j.id AND b.state IN ('ready', 'leased'))) LIMIT 10

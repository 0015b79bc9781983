-- Extend the ingest leases of a worker, also while its reader waits for an isolated batch or a slow disk. Index:
-- ingest_worker.
UPDATE tidemill.ingest SET lease_until = greatest(lease_until, tidemill.now() + %(lease)s * interval '1 second')
WHERE job_id IN (SELECT job_id FROM tidemill.ingest WHERE worker = %(worker)s AND lease_id = ANY(%(lease_ids)s)
                 ORDER BY job_id FOR UPDATE SKIP LOCKED)

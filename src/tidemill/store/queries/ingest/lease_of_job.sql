-- Lease the source of the given job for ingest. Returns the same lease again if the answer to an earlier COMMIT was
-- lost. Index: job_pkey, ingest_pkey.
WITH free AS (
    SELECT g.job_id FROM tidemill.job j JOIN tidemill.ingest g ON g.job_id = j.id
    WHERE j.id = %(job_id)s AND j.closed_as IS NULL AND j.intent = 'run' AND NOT j.ingest_done AND NOT g.fetch_pending
      AND j.kind = ANY(%(kinds)s) AND NOT j.requires && %(missing)s::text[]
      AND (g.lease_id IS NULL OR g.lease_until < tidemill.now() OR g.lease_id = %(lease_id)s)
    FOR UPDATE OF g SKIP LOCKED
)
UPDATE tidemill.ingest g SET lease_id = %(lease_id)s, worker = %(worker)s,
    lease_until = tidemill.now() + %(lease)s * interval '1 second', started_at = coalesce(g.started_at, tidemill.now())
FROM free, tidemill.job j WHERE g.job_id = free.job_id AND j.id = free.job_id
RETURNING g.job_id, g.next_seq, g.checkpoint, j.source, g.losses, j.kind, j.owner_id, j.request_id, j.traceparent,
    j.requires

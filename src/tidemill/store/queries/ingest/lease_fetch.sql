-- Lease the source of one job for its download. Owners are served in random order, and each has a limited number of
-- downloads; priority decides between the jobs of one owner. Index: ingest_fetch, job_pkey.
WITH free AS (
    SELECT g.job_id FROM tidemill.ingest g JOIN tidemill.job j ON j.id = g.job_id
    WHERE g.fetch_pending AND j.closed_as IS NULL AND j.intent = 'run' AND NOT j.ingest_done
      AND j.kind = ANY(%(kinds)s) AND (%(job_id)s::uuid IS NULL OR j.id = %(job_id)s)
      AND (g.lease_id IS NULL OR g.lease_until < tidemill.now())
      AND (SELECT count(*) FROM tidemill.ingest o JOIN tidemill.job k ON k.id = o.job_id
           WHERE o.fetch_pending AND o.lease_until >= tidemill.now() AND k.owner_id = j.owner_id) < %(per_user)s
    ORDER BY md5(j.owner_id::text || %(lease_id)s::text), j.priority DESC, j.id LIMIT 1 FOR UPDATE OF g SKIP LOCKED
)
UPDATE tidemill.ingest g SET lease_id = %(lease_id)s, worker = %(worker)s,
    lease_until = tidemill.now() + %(lease)s * interval '1 second', started_at = coalesce(g.started_at, tidemill.now())
FROM free, tidemill.job j WHERE g.job_id = free.job_id AND j.id = free.job_id
RETURNING g.job_id, g.next_seq, g.checkpoint, j.source, g.losses, j.kind, j.owner_id, j.request_id, j.traceparent

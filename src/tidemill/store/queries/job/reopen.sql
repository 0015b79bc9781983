-- Reopen a job for requeued items; with `rest`, also for the unread rest of its source. Existing failures no longer
-- count towards the failure policy. A paused job stays paused. If the job ended before its source was read completely,
-- the rest is cut unless `rest` is set, and a worker that still reads it loses its lease. The time for which the job was
-- closed is not a part of its duration. Index: job_pkey, ingest_pkey, job_tally_pkey.
WITH idle AS (
    UPDATE tidemill.job_tally t SET idle_s = t.idle_s + extract(epoch FROM tidemill.now() - j.closed_at)
    FROM tidemill.job j WHERE t.job_id = %(job_id)s AND j.id = t.job_id AND j.closed_at IS NOT NULL
), cut AS (
    UPDATE tidemill.ingest g SET cut = NOT %(rest)s, lease_id = NULL, lease_until = NULL, worker = NULL
    FROM tidemill.job j
    WHERE g.job_id = %(job_id)s AND j.id = g.job_id
      AND (g.cut OR (NOT j.ingest_done AND j.intent IN ('cancel', 'fail')))
    RETURNING g.cut
)
UPDATE tidemill.job SET closed_as = NULL, closed_at = NULL, failure_reason = NULL, forgiven = %(forgiven)s,
    intent = CASE intent WHEN 'pause' THEN 'pause' ELSE 'run' END, updated_at = tidemill.now(),
    ingest_done = coalesce((SELECT cut FROM cut), ingest_done)
WHERE id = %(job_id)s

-- Open again, for items that are sent round once more; with `rest`, also for the rest of its source.
-- What stays failed is forgiven: only new failures count for its policy. A paused job stays paused. Of a job that was
-- ended before its source was, the rest is cut: nobody asked for it to be read on, and who still reads it is refused.
-- Index: job_pkey, ingest_pkey.
WITH cut AS (
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

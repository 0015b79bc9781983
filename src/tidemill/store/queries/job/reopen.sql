-- Open again, for items that are sent round once more.
-- What stays failed is forgiven: only new failures count for its policy. A paused job stays paused.
UPDATE tidemill.job SET closed_as = NULL, closed_at = NULL, failure_reason = NULL, forgiven = %(forgiven)s,
    intent = CASE intent WHEN 'pause' THEN 'pause' ELSE 'run' END, updated_at = tidemill.now()
WHERE id = %(job_id)s

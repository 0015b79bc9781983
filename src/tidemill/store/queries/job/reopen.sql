-- Open again, for items that are sent round once more.
UPDATE tidemill.job SET closed_as = NULL, closed_at = NULL, failure_reason = NULL, intent = 'run',
    updated_at = tidemill.now()
WHERE id = %(job_id)s

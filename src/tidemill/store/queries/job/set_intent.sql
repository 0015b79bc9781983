-- Set the intent of a job. Requires its lock.
UPDATE tidemill.job SET intent = %(intent)s, updated_at = tidemill.now(),
    failure_reason = coalesce(%(reason)s, failure_reason)
WHERE id = %(job_id)s

-- Whether an item is settled or was deleted with its job, so that a late attempt must stop.
-- Index: job_pkey, outcome_pkey.
SELECT NOT EXISTS (SELECT 1 FROM tidemill.job WHERE id = %(job_id)s)
    OR EXISTS (SELECT 1 FROM tidemill.outcome WHERE job_id = %(job_id)s AND seq = %(seq)s
               AND status NOT IN ('pending', 'retry_wait'))

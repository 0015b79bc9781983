-- Whether an item is settled, or gone with its job: whoever still works at it comes too late. Index: job_pkey, outcome_pkey.
SELECT NOT EXISTS (SELECT 1 FROM tidemill.job WHERE id = %(job_id)s)
    OR EXISTS (SELECT 1 FROM tidemill.outcome WHERE job_id = %(job_id)s AND seq = %(seq)s
               AND status NOT IN ('pending', 'retry_wait'))

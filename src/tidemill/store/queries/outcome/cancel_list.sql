-- Set the outcomes of items in cancelled lists to cancelled. Index: outcome_pkey.
UPDATE tidemill.outcome SET status = 'cancelled', updated_at = greatest(updated_at, tidemill.now())
WHERE job_id = %(job_id)s AND seq = ANY(%(seqs)s) AND status IN ('pending', 'retry_wait')

-- Whether an export still needs its file: its job exists and is neither cancelled nor finished.
-- Index: job_pkey, outcome_pkey.
SELECT EXISTS (SELECT 1 FROM tidemill.job WHERE id = %(export_id)s AND intent NOT IN ('cancel', 'fail'))
   AND NOT EXISTS (SELECT 1 FROM tidemill.outcome WHERE job_id = %(export_id)s AND seq = 0 AND status = 'done')

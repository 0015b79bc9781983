-- Whether an export still needs its file: both jobs exist, and the export is neither cancelled nor finished.
-- Index: job_pkey, outcome_pkey.
SELECT EXISTS (SELECT 1 FROM tidemill.job WHERE id = %(job_id)s AND purged_at IS NULL)
   AND EXISTS (SELECT 1 FROM tidemill.job WHERE id = %(export_id)s AND intent NOT IN ('cancel', 'fail'))
   AND NOT EXISTS (SELECT 1 FROM tidemill.outcome WHERE job_id = %(export_id)s AND seq = 0 AND status = 'done')

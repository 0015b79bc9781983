-- Whether the file of an export is still wanted: its job is there, is not to be cancelled, and nobody has finished it.
-- Index: job_pkey, outcome_pkey.
SELECT EXISTS (SELECT 1 FROM tidemill.job WHERE id = %(export_id)s AND intent NOT IN ('cancel', 'fail'))
   AND NOT EXISTS (SELECT 1 FROM tidemill.outcome WHERE job_id = %(export_id)s AND seq = 0 AND status = 'done')

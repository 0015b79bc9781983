-- Return which of these jobs exist and are neither cancelled nor failed. Index: job_pkey.
SELECT id FROM tidemill.job WHERE id = ANY(%(ids)s::uuid[]) AND intent NOT IN ('cancel', 'fail')

-- Which of these jobs somebody still wants to be worked on: they are there, and neither cancelled nor failed.
-- Index: job_pkey.
SELECT id FROM tidemill.job WHERE id = ANY(%(ids)s::uuid[]) AND intent NOT IN ('cancel', 'fail')

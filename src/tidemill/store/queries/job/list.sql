-- The newest jobs, all or one owner's. Index: job_pkey backwards (ids are in order of time).
SELECT * FROM tidemill.job_progress
WHERE (%(owner_id)s::bigint IS NULL OR owner_id = %(owner_id)s)
  AND (NOT %(open_only)s OR closed_as IS NULL)
  AND (%(before)s::uuid IS NULL OR id < %(before)s)
ORDER BY id DESC LIMIT %(limit)s

-- Held by who changes something of a job without changing the job: it is not deleted or purged meanwhile.
SELECT purged_at, kind FROM tidemill.job WHERE id = %(job_id)s FOR KEY SHARE

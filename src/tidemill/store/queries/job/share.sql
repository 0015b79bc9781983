-- Lock a job for a change of its rows, so that it is not deleted or purged meanwhile.
SELECT purged_at FROM tidemill.job WHERE id = %(job_id)s FOR KEY SHARE

-- Closed batches of purged jobs, folded sums stay.
DELETE FROM tidemill.batch WHERE job_id >= %(lo)s AND job_id < %(hi)s

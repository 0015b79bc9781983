-- Delete the closed batches of purged jobs. The folded counters stay.
DELETE FROM tidemill.batch WHERE job_id >= %(lo)s AND job_id < %(hi)s

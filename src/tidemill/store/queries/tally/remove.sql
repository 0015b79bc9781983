-- Delete the folded counters of a deleted job.
DELETE FROM tidemill.job_tally WHERE job_id = %(job_id)s

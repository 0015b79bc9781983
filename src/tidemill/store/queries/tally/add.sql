-- The folded sums of a new job.
INSERT INTO tidemill.job_tally (job_id) VALUES (%(job_id)s)

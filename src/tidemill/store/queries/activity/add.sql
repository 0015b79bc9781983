-- Record what a user did to a job.
INSERT INTO tidemill.activity (job_id, user_id, verb, details) VALUES (%(job_id)s, %(user_id)s, %(verb)s, %(details)s)

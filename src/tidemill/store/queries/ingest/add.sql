-- The counters of a new job, and how far its source has been read: not at all, or (inputs of the submission) to the end.
WITH tally AS (INSERT INTO tidemill.job_tally (job_id) VALUES (%(job_id)s))
INSERT INTO tidemill.ingest (job_id, next_seq) VALUES (%(job_id)s, %(next_seq)s)

-- Add the ingest state of a new job: nothing read yet, or complete if the inputs came with the submission.
WITH tally AS (INSERT INTO tidemill.job_tally (job_id) VALUES (%(job_id)s))
INSERT INTO tidemill.ingest (job_id, next_seq, fetch_pending)
VALUES (%(job_id)s, %(next_seq)s, %(fetch_pending)s)

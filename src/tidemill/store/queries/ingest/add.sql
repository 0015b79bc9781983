-- How far a job's source has been read: not at all, or (inline inputs) to the end.
INSERT INTO tidemill.ingest (job_id, next_seq) VALUES (%(job_id)s, %(next_seq)s)

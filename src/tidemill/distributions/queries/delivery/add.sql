-- Record the number of generated and reused files of a flush, in its transaction.
INSERT INTO tidemill.delivery (job_id, generated, reused) VALUES (%(job_id)s, %(generated)s, %(reused)s)

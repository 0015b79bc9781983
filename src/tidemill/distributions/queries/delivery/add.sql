-- How many files a flush tells of; in its transaction.
INSERT INTO tidemill.delivery (job_id, generated, reused) VALUES (%(job_id)s, %(generated)s, %(reused)s)

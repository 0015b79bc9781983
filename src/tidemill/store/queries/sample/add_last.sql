-- Where a job was when it was closed, in the same transaction: short jobs have this one alone. Index: job_sample_pkey.
INSERT INTO tidemill.job_sample (job_id, at, settled, failed)
VALUES (%(job_id)s, tidemill.now(), %(settled)s, %(failed)s)
ON CONFLICT (job_id, at) DO NOTHING

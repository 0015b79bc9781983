-- What a job was asked to do, with what its source has told. Index: job_pkey.
UPDATE tidemill.job SET params = %(params)s WHERE id = %(job_id)s

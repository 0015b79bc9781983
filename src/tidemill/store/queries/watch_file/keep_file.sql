-- The stored file of a job that was made of it does not go by itself any more. Index: unneeded_file_pkey, job_pkey.
DELETE FROM tidemill.unneeded_file WHERE file_id = (SELECT file_id FROM tidemill.job WHERE id = %(job_id)s)

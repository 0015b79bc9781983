-- Record the size of a file that a job stores. Index: job_pkey.
INSERT INTO tidemill.stored_file (file_id, job_id, owner_id, bytes)
SELECT %(file_id)s, id, owner_id, %(bytes)s FROM tidemill.job WHERE id = %(job_id)s
ON CONFLICT (file_id) DO UPDATE SET bytes = EXCLUDED.bytes

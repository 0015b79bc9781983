-- The stored file of a job that goes.
INSERT INTO tidemill.unneeded_file (file_id)
SELECT file_id FROM tidemill.job WHERE id = %(job_id)s AND file_id IS NOT NULL
ON CONFLICT DO NOTHING

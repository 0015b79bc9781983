-- The stored files of a job that goes: what it was submitted with, and what it made if it is an export.
INSERT INTO tidemill.unneeded_file (file_id)
SELECT file_id FROM tidemill.job WHERE id = %(job_id)s AND file_id IS NOT NULL
UNION ALL
SELECT replace(id::text, '-', '') FROM tidemill.job WHERE id = %(job_id)s AND kind = 'tidemill.export'
ON CONFLICT (file_id) DO UPDATE SET at = least(unneeded_file.at, EXCLUDED.at)

-- Mark the stored files of a deleted job as unneeded: its input file and the files that it created. The files of a
-- distribution stay, so their sizes count until the job would be purged. Index:
-- unneeded_file_made_by, stored_file_job, job_pkey.
WITH made AS (
    UPDATE tidemill.unneeded_file SET at = least(at, tidemill.now()) WHERE made_by = %(job_id)s
), sizes AS (
    DELETE FROM tidemill.stored_file WHERE job_id = %(job_id)s AND NOT starts_with(file_id, 'distribution:')
)
INSERT INTO tidemill.unneeded_file (file_id)
SELECT file_id FROM tidemill.job WHERE id = %(job_id)s AND file_id IS NOT NULL
ON CONFLICT (file_id) DO UPDATE SET at = least(unneeded_file.at, EXCLUDED.at)

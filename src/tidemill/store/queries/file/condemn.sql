-- Mark the stored files of purged jobs as unneeded: their input files and the files that they created. No two jobs
-- share a stored file. Index: unneeded_file_made_by, stored_file_job.
WITH made AS (
    UPDATE tidemill.unneeded_file SET at = least(at, tidemill.now()) WHERE made_by >= %(lo)s AND made_by < %(hi)s
), sizes AS (
    DELETE FROM tidemill.stored_file WHERE job_id >= %(lo)s AND job_id < %(hi)s
)
INSERT INTO tidemill.unneeded_file (file_id)
SELECT file_id FROM tidemill.job WHERE id >= %(lo)s AND id < %(hi)s AND file_id IS NOT NULL
ON CONFLICT (file_id) DO UPDATE SET at = least(unneeded_file.at, EXCLUDED.at)

-- The stored files of jobs that go: what they were submitted with, and what they made if they are exports.
-- Every submission and every export stores a file of its own: nobody else needs it.
INSERT INTO tidemill.unneeded_file (file_id)
SELECT file_id FROM tidemill.job WHERE id >= %(lo)s AND id < %(hi)s AND file_id IS NOT NULL
UNION ALL
SELECT replace(id::text, '-', '') FROM tidemill.job
WHERE id >= %(lo)s AND id < %(hi)s AND kind = 'tidemill.export'
ON CONFLICT (file_id) DO UPDATE SET at = least(unneeded_file.at, EXCLUDED.at)

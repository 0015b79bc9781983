-- The stored files of jobs that go. Every submission stores a file of its own: nobody else needs it.
INSERT INTO tidemill.unneeded_file (file_id)
SELECT file_id FROM tidemill.job WHERE id >= %(lo)s AND id < %(hi)s AND file_id IS NOT NULL
ON CONFLICT DO NOTHING

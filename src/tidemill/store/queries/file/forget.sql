-- Delete the records of files that were removed from their machine, or that no machine has removed for a month. Index:
-- unneeded_file_pkey, stored_file_pkey.
WITH gone AS (
    DELETE FROM tidemill.unneeded_file
    WHERE file_id = ANY(%(files)s) OR at < tidemill.now() - interval '30 days' RETURNING file_id
)
DELETE FROM tidemill.stored_file s USING gone WHERE s.file_id = gone.file_id

-- Mark the files that a cancelled job created as unneeded; maintenance removes them. Index: unneeded_file_made_by,
-- stored_file_pkey.
WITH made AS (
    UPDATE tidemill.unneeded_file SET at = least(at, tidemill.now()) WHERE made_by = %(job_id)s RETURNING file_id
)
DELETE FROM tidemill.stored_file s USING made WHERE s.file_id = made.file_id

-- Mark the files that a cancelled job created as unneeded; maintenance removes them. Index: unneeded_file_made_by.
UPDATE tidemill.unneeded_file SET at = least(at, tidemill.now()) WHERE made_by = %(job_id)s

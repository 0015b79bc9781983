-- Delete the records of files that were removed from their machine, or that no machine has removed for a month.
DELETE FROM tidemill.unneeded_file
WHERE file_id = ANY(%(files)s) OR at < tidemill.now() - interval '30 days'

-- Removed from their machine; or nobody has had them for a month.
DELETE FROM tidemill.unneeded_file
WHERE file_id = ANY(%(files)s) OR at < tidemill.now() - interval '30 days'

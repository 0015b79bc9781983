-- Files that no job needs any more, on whatever machine they are. Those of exports are listed from the first, for when they expire.
SELECT file_id FROM tidemill.unneeded_file WHERE at <= tidemill.now() ORDER BY at LIMIT 10000

-- Files that no job needs any more, on whatever machine they are.
SELECT file_id FROM tidemill.unneeded_file ORDER BY at LIMIT 10000

-- A page of the files that no job needs any more, on whatever machine they are: those that are nowhere must not hide the rest.
-- Those of exports are listed from the first, for when they expire. Index: unneeded_file_pkey.
SELECT file_id FROM tidemill.unneeded_file WHERE at <= tidemill.now() AND file_id > %(after)s ORDER BY file_id LIMIT %(limit)s

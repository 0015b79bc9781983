-- List a page of files that no job needs, on any machine. Paging keeps records of files that no machine has from hiding
-- the others. Export files are recorded when they are created and appear when they expire. Index: unneeded_file_pkey.
SELECT file_id FROM tidemill.unneeded_file WHERE at <= tidemill.now() AND file_id > %(after)s ORDER BY file_id LIMIT %(limit)s

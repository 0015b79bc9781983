-- Return the rows of the table that exports read.
SELECT id, word FROM tidemill_torture.source ORDER BY id

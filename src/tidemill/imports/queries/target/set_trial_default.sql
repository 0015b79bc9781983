-- Makes a column of the dry run use its own sequence.
ALTER TABLE pg_temp.tidemill_trial ALTER COLUMN {column} SET DEFAULT {default}

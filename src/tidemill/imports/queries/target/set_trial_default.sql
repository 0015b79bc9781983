-- A column of the trial counts by a sequence of its own.
ALTER TABLE pg_temp.tidemill_trial ALTER COLUMN {column} SET DEFAULT {default}

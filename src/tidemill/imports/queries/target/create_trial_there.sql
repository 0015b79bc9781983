-- Like tidemill_trial, for copies of existing rows. Generated columns are plain here and keep their values.
CREATE TEMPORARY TABLE tidemill_trial_there (LIKE {table} INCLUDING CONSTRAINTS) ON COMMIT DROP

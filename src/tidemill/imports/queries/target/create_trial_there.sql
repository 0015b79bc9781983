-- As tidemill_trial, for copies of rows that are there: generated columns are as they were.
CREATE TEMPORARY TABLE tidemill_trial_there (LIKE {table} INCLUDING CONSTRAINTS) ON COMMIT DROP

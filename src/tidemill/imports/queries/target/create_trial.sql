-- A copy of the table definition for the new rows of a dry run, dropped at the end of the transaction.
CREATE TEMPORARY TABLE tidemill_trial
    (LIKE {table} INCLUDING CONSTRAINTS INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING IDENTITY) ON COMMIT DROP

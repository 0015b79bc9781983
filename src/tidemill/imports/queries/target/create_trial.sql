-- A table of the same shape, for rows that are only tried: it is gone when the transaction ends.
CREATE TEMPORARY TABLE tidemill_trial
    (LIKE {table} INCLUDING CONSTRAINTS INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING IDENTITY) ON COMMIT DROP

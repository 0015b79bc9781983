-- Copies existing rows for the update of a dry run. Index: the unique index of the key.
INSERT INTO pg_temp.tidemill_trial_there
SELECT t.* FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match} RETURNING 0

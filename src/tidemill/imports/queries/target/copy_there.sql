-- Existing rows, for an update that is only tried. Index: the unique one of the key.
INSERT INTO pg_temp.tidemill_trial_there
SELECT t.* FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) JOIN {table} t ON {match} RETURNING 0

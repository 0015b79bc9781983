-- A sequence that is gone with the trial.
CREATE TEMPORARY SEQUENCE {sequence} MINVALUE -9223372036854775808 START {start} OWNED BY pg_temp.tidemill_trial.{column}

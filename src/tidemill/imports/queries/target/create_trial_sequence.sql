-- A sequence of the dry run, dropped with its table.
CREATE TEMPORARY SEQUENCE {sequence} MINVALUE -9223372036854775808 START {start} OWNED BY pg_temp.tidemill_trial.{column}

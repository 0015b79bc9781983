-- Remove the tables of a run.
DROP SCHEMA IF EXISTS tidemill_torture CASCADE

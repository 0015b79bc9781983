-- Create the tables of a run, in their own schema. A schema of an interrupted run is replaced.
DROP SCHEMA IF EXISTS tidemill_torture CASCADE;
CREATE SCHEMA tidemill_torture;
-- Without a unique key, so that a repeated effect is visible.
CREATE TABLE tidemill_torture.effect (job_id uuid NOT NULL, seq bigint NOT NULL, pid int NOT NULL);
CREATE INDEX ON tidemill_torture.effect (job_id);
CREATE TABLE tidemill_torture.target (id text PRIMARY KEY, n bigint NOT NULL, version int NOT NULL);
CREATE TABLE tidemill_torture.source AS SELECT n AS id, md5(n::text) AS word FROM generate_series(1, 2000) n;
ALTER TABLE tidemill_torture.source ADD PRIMARY KEY (id);

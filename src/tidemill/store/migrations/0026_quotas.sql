-- Limits of single users, which replace the defaults of the settings: name -> limit, null for no limit.
ALTER TABLE tidemill.app_user ADD quota jsonb NOT NULL DEFAULT '{}';

-- The sizes of the files that jobs store: their input files and the files that they create.
CREATE TABLE tidemill.stored_file (
    file_id  text PRIMARY KEY,
    job_id   uuid NOT NULL,
    owner_id bigint NOT NULL,
    bytes    bigint NOT NULL
);
CREATE INDEX stored_file_job ON tidemill.stored_file (job_id);
CREATE INDEX stored_file_owner ON tidemill.stored_file (owner_id) INCLUDE (bytes);

CREATE INDEX job_open_owner ON tidemill.job (owner_id) WHERE closed_as IS NULL;

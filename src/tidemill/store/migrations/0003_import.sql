-- Where in its file a record stood. NULL: on the line that its number says, from the first line of all on.
ALTER TABLE tidemill.item ADD COLUMN line bigint;
ALTER TABLE tidemill.ingest ADD COLUMN first_line integer NOT NULL DEFAULT 1;

-- Rows of a file that share a key with another one: who loses, and to whom. ``place`` is which of the keys.
CREATE TABLE tidemill.repeat (
    job_id uuid NOT NULL,
    seq    bigint NOT NULL,
    other  bigint NOT NULL,
    place  smallint NOT NULL,
    PRIMARY KEY (job_id, seq, place)
);

-- What batches did to their target, a row each: a sum in one place would be a lock that all of them want.
CREATE TABLE tidemill.effect (
    job_id    uuid NOT NULL,
    inserted  integer NOT NULL,
    updated   integer NOT NULL,
    unchanged integer NOT NULL
);
CREATE INDEX effect_job ON tidemill.effect (job_id);

-- Whose file it is that somebody wants to import.
CREATE INDEX job_file ON tidemill.job (file_id) WHERE file_id IS NOT NULL;

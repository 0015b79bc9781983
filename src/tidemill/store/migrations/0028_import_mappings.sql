-- The column mappings and other reading options of past imports, by owner, resource and header. Imports of files with
-- the same columns propose them. The fingerprint is a hash of the sorted, normalized columns.
CREATE TABLE tidemill.import_mapping (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_id    bigint NOT NULL REFERENCES tidemill.app_user ON DELETE CASCADE,
    resource    text NOT NULL,
    fingerprint bytea NOT NULL,
    columns     jsonb NOT NULL,  -- in the order of the file
    options     jsonb NOT NULL,  -- the mapping, the layout and other options of the import
    shared      boolean NOT NULL DEFAULT false,
    uses        integer NOT NULL DEFAULT 1,
    job_id      uuid NOT NULL,   -- the last import that used it
    job_key     text NOT NULL,
    used_at     timestamptz NOT NULL DEFAULT tidemill.now(),
    UNIQUE (owner_id, resource, fingerprint)
);
CREATE INDEX import_mapping_resource ON tidemill.import_mapping (resource, used_at, id);
CREATE INDEX import_mapping_owner ON tidemill.import_mapping (owner_id, used_at, id);

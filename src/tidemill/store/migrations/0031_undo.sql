-- Imports can be undone. In the transaction of a batch, an import records the keys of the rows that it inserts, the
-- complete earlier content of the rows that it updates, and a hash of each row as the import left it. An undo records
-- the same, so that it can be undone.
ALTER TABLE tidemill.operation DROP CONSTRAINT operation_verb_check;
ALTER TABLE tidemill.operation ADD CONSTRAINT operation_verb_check
    CHECK (verb IN ('reprocess', 'redrive', 'cancel', 'dismiss', 'restore', 'repair', 'undo', 'redo'));
CREATE INDEX operation_job ON tidemill.operation (job_id, id) WHERE verb IN ('undo', 'redo');

-- One record for each statement that wrote rows, with an array for each column: fewer bytes than a row for each row.
CREATE TABLE tidemill.undo_log (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id       uuid NOT NULL,
    operation_id uuid,              -- the undo or redo that wrote the record; NULL for the import
    is_undo      boolean NOT NULL,  -- written by an undo, so that a redo reverses it
    action       text NOT NULL CHECK (action IN ('insert', 'update', 'delete')),
    layout       jsonb NOT NULL,    -- the columns of the table and the key, at that time
    row_count    integer NOT NULL CHECK (row_count > 0),
    live         integer[],         -- the numbers of the rows that are not reversed, from 1; NULL for all
    live_count   integer NOT NULL CHECK (live_count BETWEEN 0 AND row_count),
    keys         text[] NOT NULL,   -- an array for each key column
    images       text[],            -- of updated and deleted rows: an array for each column
    hashes       bigint[]           -- of inserted and updated rows: the content after the action
);
CREATE INDEX undo_log_live ON tidemill.undo_log (job_id, is_undo, id) WHERE live_count > 0;
CREATE INDEX undo_log_job ON tidemill.undo_log (job_id, id);
-- Compression costs more time than it saves in writes.
ALTER TABLE tidemill.undo_log ALTER keys SET STORAGE EXTERNAL, ALTER images SET STORAGE EXTERNAL,
    ALTER hashes SET STORAGE EXTERNAL;

-- The rows that the last undo or redo of an import did not reverse.
CREATE TABLE tidemill.undo_exception (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id       uuid NOT NULL,
    operation_id uuid NOT NULL,
    status       text NOT NULL CHECK (status IN ('kept', 'blocked')),
    code         text NOT NULL,
    reason       text NOT NULL,
    key          text[] NOT NULL
);
CREATE INDEX undo_exception_job ON tidemill.undo_exception (job_id, id);
CREATE INDEX undo_exception_operation ON tidemill.undo_exception (operation_id, id);

-- The columns of the last file that a watch imported. A file with other columns is held until a user decides.
ALTER TABLE tidemill.watch ADD columns jsonb;
ALTER TABLE tidemill.watch_file ADD accepted boolean NOT NULL DEFAULT false;
ALTER TABLE tidemill.watch_file DROP CONSTRAINT watch_file_state_check;
ALTER TABLE tidemill.watch_file ADD CONSTRAINT watch_file_state_check CHECK (state IN
    ('seen', 'taken', 'held', 'submitted', 'persisted', 'processed', 'rejected', 'failed', 'refused', 'gone'));

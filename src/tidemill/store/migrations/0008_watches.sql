-- When a watch has its turn, who has it, and what it came to. What it watches is declared, and not here.
CREATE TABLE tidemill.watch (
    name        text PRIMARY KEY,
    due_at      timestamptz NOT NULL DEFAULT tidemill.now(), -- the next look at its source
    settle_at   timestamptz NOT NULL DEFAULT 'infinity',     -- the next look at the jobs of its files
    scanned_at  timestamptz,
    found       integer NOT NULL DEFAULT 0,
    submitted   integer NOT NULL DEFAULT 0,
    failures    integer NOT NULL DEFAULT 0,
    problem     text,
    lease_id    uuid,
    lease_until timestamptz,
    worker      text
) WITH (fillfactor = 70);

-- Files that watches have found, by version: one is taken once. It outlives its job.
CREATE TABLE tidemill.watch_file (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    watch    text NOT NULL,
    source   text NOT NULL,
    path     text NOT NULL,
    size     bigint,
    version  text NOT NULL,
    tries    integer NOT NULL DEFAULT 0,
    state    text NOT NULL DEFAULT 'seen' CHECK (state IN
        ('seen', 'taken', 'submitted', 'persisted', 'processed', 'rejected', 'failed', 'refused', 'gone')),
    note     text,
    owner_id bigint,
    file_id  text,
    job_id   uuid,
    moved_to text,
    seen_at  timestamptz NOT NULL DEFAULT tidemill.now(), -- in this version
    at       timestamptz NOT NULL DEFAULT tidemill.now(),
    UNIQUE NULLS NOT DISTINCT (source, path, size, version)
);
CREATE UNIQUE INDEX watch_file_waiting ON tidemill.watch_file (source, path) WHERE state = 'seen';
CREATE INDEX watch_file_open ON tidemill.watch_file (watch, id)
    WHERE state IN ('seen', 'taken', 'submitted', 'persisted', 'rejected');
CREATE INDEX watch_file_newest ON tidemill.watch_file (watch, at, id);
CREATE INDEX watch_file_state ON tidemill.watch_file (watch, state, at, id);
CREATE INDEX watch_file_over ON tidemill.watch_file (at)
    WHERE state = 'gone' OR (state = 'processed' AND moved_to IS NOT NULL);

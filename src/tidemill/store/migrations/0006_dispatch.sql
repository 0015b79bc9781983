-- Whether hints are sent through a broker: whoever submits must know, also one who has no such setting himself.
-- `namespace` is in the names of its queues, so that several installations may share a broker.
CREATE TABLE tidemill.broker (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    namespace text NOT NULL DEFAULT left(replace(gen_random_uuid()::text, '-', ''), 12),
    scheme    text NOT NULL,
    seen_at   timestamptz NOT NULL DEFAULT tidemill.now()
);

-- Hints on their way to the broker: one row a job until a relay takes it. `hints` is how many workers are worth waking,
-- `batches` are for tracing only. A row that is claimed gathers nothing more: what comes then is a row of its own.
CREATE TABLE tidemill.outbox (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id        uuid NOT NULL,
    hints         smallint NOT NULL CHECK (hints BETWEEN 1 AND 16),
    batches       bigint[] NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT tidemill.now(),
    claimed_by    text,
    claimed_until timestamptz,
    attempts      smallint NOT NULL DEFAULT 0,
    error         text,
    CHECK ((claimed_by IS NULL) = (claimed_until IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);
CREATE UNIQUE INDEX outbox_unsent ON tidemill.outbox (job_id) WHERE claimed_by IS NULL;
CREATE INDEX outbox_job ON tidemill.outbox (job_id);

-- Messages that are no hints, and hints that the broker would not take: for people to look at.
CREATE TABLE tidemill.quarantine (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT tidemill.now(),
    source  text NOT NULL CHECK (source IN ('received', 'refused')),
    reason  text NOT NULL,
    message text NOT NULL,
    size    integer NOT NULL,
    job_id  uuid,
    worker  text
);

-- There is work. Workers that listen are told when the transaction commits; if there is a broker, so will it be.
CREATE FUNCTION tidemill.announce(job uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('tidemill', job::text);
    IF EXISTS (SELECT FROM tidemill.broker) THEN
        INSERT INTO tidemill.outbox AS unsent (job_id, hints, batches)
        -- One batch may be cut for several workers: 50 items are what a process usually has in hand.
        SELECT job, least(greatest(count(*), ceil(sum(due.open) / 50.0), 1), 16), coalesce(array_agg(due.id), '{}') FROM (
            SELECT b.id, b.open FROM tidemill.batch b
            WHERE b.job_id = job AND b.state = 'ready' AND b.not_before <= tidemill.now()
            ORDER BY b.not_before, b.id LIMIT 16
        ) due
        ON CONFLICT (job_id) WHERE claimed_by IS NULL
        DO UPDATE SET hints = greatest(unsent.hints, excluded.hints), batches = excluded.batches;
    END IF;
END
$$;

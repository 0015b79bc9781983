-- Batches of a source whose rows must wait for its end had a due time in the far future. Now the flag of the source alone
-- says that they wait.
ALTER TABLE tidemill.ingest RENAME COLUMN held TO rows_wait_for_end;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_constraint WHERE conname = 'ingest_held_not_null') THEN  -- PostgreSQL 18 names them
        ALTER TABLE tidemill.ingest RENAME CONSTRAINT ingest_held_not_null TO ingest_rows_wait_for_end_not_null;
    END IF;
END
$$;

UPDATE tidemill.batch SET not_before = tidemill.now()
WHERE state = 'ready' AND not_before > tidemill.now() + interval '100 years';

-- Whether the batches of a job must wait until its source is read to the end.
CREATE FUNCTION tidemill.waits_for_source(job uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM tidemill.ingest g JOIN tidemill.job j ON j.id = g.job_id
                   WHERE g.job_id = job AND g.rows_wait_for_end AND NOT j.ingest_done)
$$;

CREATE OR REPLACE FUNCTION tidemill.announce(job uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('tidemill', job::text);
    IF EXISTS (SELECT FROM tidemill.broker) THEN
        INSERT INTO tidemill.outbox AS unsent (job_id, hints, batches)
        -- One batch may be cut for several workers: 50 items are what a process usually has in hand.
        SELECT job, least(greatest(count(*), ceil(sum(due.open) / 50.0), 1), 16), coalesce(array_agg(due.id), '{}') FROM (
            SELECT b.id, b.open FROM tidemill.batch b
            WHERE b.job_id = job AND b.state = 'ready' AND b.not_before <= tidemill.now()
              AND NOT tidemill.waits_for_source(job)
            ORDER BY b.not_before, b.id LIMIT 16
        ) due
        ON CONFLICT (job_id) WHERE claimed_by IS NULL
        DO UPDATE SET hints = greatest(unsent.hints, excluded.hints), batches = excluded.batches;
    END IF;
END
$$;

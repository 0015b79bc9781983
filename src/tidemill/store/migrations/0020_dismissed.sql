-- A user can dismiss a failed item: it leaves the list of dead letters, and its job and counters stay as they are. The
-- record is part of the outcome: two indexes separate dismissed items from the others, and retry, delete and purge need
-- no further table.
ALTER TABLE tidemill.outcome ADD COLUMN dismissed_at timestamptz, ADD COLUMN dismissed_by bigint;

DROP INDEX tidemill.outcome_dead_letter;
CREATE INDEX outcome_dead_letter ON tidemill.outcome (owner_id, updated_at, job_id, seq)
    WHERE status = 'failed' AND dismissed_at IS NULL;
CREATE INDEX outcome_dismissed ON tidemill.outcome (owner_id, updated_at, job_id, seq) WHERE dismissed_at IS NOT NULL;

ALTER TABLE tidemill.operation DROP CONSTRAINT operation_verb_check;
ALTER TABLE tidemill.operation ADD CONSTRAINT operation_verb_check
    CHECK (verb IN ('reprocess', 'redrive', 'cancel', 'dismiss', 'restore'));

-- Where a failure comes from: a dry run, an invalid row of an import, or a handler. In imports, only these codes are
-- failures of the handler; all others name a rule that the row violates.
CREATE FUNCTION tidemill.failure_category(kind text, params jsonb, code text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN coalesce(params->'plan'->>'validate_only', params->'request'->>'validate_only') = 'true' THEN 'dry_run'
        WHEN kind = 'tidemill.import'
            AND coalesce(code, '') NOT IN ('exhausted', 'timeout', 'memory', 'throttled', 'poison') THEN 'invalid_row'
        ELSE 'handler'
    END
$$;

-- The type of an error: the class of its exception, or its code.
CREATE FUNCTION tidemill.error_type(error json) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(error->>'type', error->>'code', '')
$$;

-- The message of an error without the values that differ between items: quoted values, UUIDs and numbers.
CREATE FUNCTION tidemill.error_pattern(error json) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT left(regexp_replace(left(coalesce(error->>'reason', ''), 1000),
        '"[^"]*"|(?<!\w)''[^'']*''(?!\w)|\m0x[[:xdigit:]]+|\d+(?:[.,:]\d+)*'
            || '|\m[[:xdigit:]]{8}-[[:xdigit:]]{4}-[[:xdigit:]]{4}-[[:xdigit:]]{4}-[[:xdigit:]]{12}\M',
        '…', 'g'), 200)
$$;

-- Identifies failures of a kind with the same type and the same message without values.
CREATE FUNCTION tidemill.failure_group(kind text, error json) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT md5(kind || chr(31) || tidemill.error_type(error) || chr(31) || tidemill.error_pattern(error))
$$;

-- The same view again: its `SELECT *` has the columns of the table at the time of its creation.
CREATE OR REPLACE VIEW tidemill.item_status AS
SELECT i.job_id, i.seq, i.job_id || ':' || i.seq AS id, j.owner_id, j.kind,
    CASE
        WHEN o.status IN ('pending', 'retry_wait') THEN CASE WHEN l.state = 'leased' THEN 'processing' ELSE o.status END
        WHEN o.status IS NOT NULL THEN o.status
        WHEN r.state = 'leased' THEN 'processing'
        WHEN r.state = 'ready' THEN 'pending'
        WHEN r.state = 'cancelled' THEN 'cancelled'
        WHEN j.sparse THEN 'done'
    END AS status,
    coalesce(o.attempts, 0) AS attempts,
    coalesce(CASE WHEN l.state = 'leased' THEN l.worker END, CASE WHEN r.state = 'leased' THEN r.worker END) AS locked_by,
    coalesce(CASE WHEN l.state = 'leased' THEN l.since END, CASE WHEN r.state = 'leased' THEN r.since END) AS locked_at,
    greatest(o.updated_at, l.since, r.since, r.closed_at, i.at) AS updated_at,
    i.input, i.defect, o.result, o.normalized, o.error, o.duration_ms, coalesce(l.id, r.id) AS batch_id,
    o.details
FROM tidemill.item i
JOIN tidemill.job j ON j.id = i.job_id
-- LIMIT 1 on every side makes the planner look up one row per item and never join a whole job.
LEFT JOIN LATERAL (
    SELECT * FROM tidemill.outcome o WHERE o.job_id = i.job_id AND o.seq = i.seq LIMIT 1
) o ON true
LEFT JOIN LATERAL (
    SELECT b.id, b.state, b.worker, b.since FROM tidemill.batch b
    WHERE b.job_id = i.job_id AND b.seqs IS NOT NULL AND b.state IN ('ready', 'leased')
      AND b.lo <= i.seq AND b.hi > i.seq AND b.seqs @> ARRAY[i.seq]
      AND o.status IN ('pending', 'retry_wait')
    ORDER BY b.id LIMIT 1
) l ON true
-- Live ranges do not overlap: either the first range that ends after the item covers it, or none does.
LEFT JOIN LATERAL (
    SELECT next.* FROM (
        SELECT b.id, b.state, b.worker, b.since, b.closed_at, b.lo FROM tidemill.batch b
        WHERE b.job_id = i.job_id AND b.seqs IS NULL AND b.state <> 'done' AND b.hi > i.seq AND o.seq IS NULL
        ORDER BY b.hi LIMIT 1
    ) next WHERE next.lo <= i.seq
) r ON true;

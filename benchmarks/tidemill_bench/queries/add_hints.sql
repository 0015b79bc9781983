-- Creates n open jobs without items, each with a hint.
WITH made AS (
    INSERT INTO tidemill.job (kind, ingest_done) SELECT %(kind)s, true FROM generate_series(1, %(n)s) RETURNING id
)
INSERT INTO tidemill.outbox (job_id, hints) SELECT id, 1 FROM made RETURNING job_id

-- The columns that a flush writes.
COPY tidemill_bench.outcome (job_id, seq, owner_id, status, attempts, updated_at, result, normalized, error, duration_ms,
    details)
FROM STDIN

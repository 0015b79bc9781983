-- Append outcomes of items of a range, which have none yet, so that no row can conflict.
COPY tidemill.outcome (job_id, seq, owner_id, status, attempts, updated_at, result, normalized, error, duration_ms,
    details)
FROM STDIN

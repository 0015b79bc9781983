-- First passes: an append that cannot conflict.
COPY tidemill.outcome (job_id, seq, owner_id, status, attempts, updated_at, result, normalized, error, duration_ms)
FROM STDIN

-- Append-only, in chunks.
COPY tidemill.item (job_id, seq, input, defect, line, at) FROM STDIN

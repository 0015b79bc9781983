-- Append a chunk of items.
COPY tidemill.item (job_id, seq, input, defect, line, at) FROM STDIN

-- The columns that ingest writes.
COPY tidemill_bench.item (job_id, seq, input, defect, line, at) FROM STDIN

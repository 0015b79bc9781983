-- Append pairs of rows in a file that have the same key, with the chunk that contains the later row.
COPY tidemill.repeat (job_id, seq, other, place) FROM STDIN

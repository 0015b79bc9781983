-- Rows of a file that share a key with another one; with the chunk that has the later of them.
COPY tidemill.repeat (job_id, seq, other, place) FROM STDIN

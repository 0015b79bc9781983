-- Write one effect per item, in the transaction that writes their outcomes.
INSERT INTO tidemill_torture.effect (job_id, seq, pid)
SELECT %(job_id)s, seq, %(pid)s FROM unnest(%(seqs)s::bigint[]) AS seq

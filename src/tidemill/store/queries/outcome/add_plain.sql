-- Add an outcome with only a status for the given items of a range that have none yet and leave the range one by one.
-- Requires the locks of the job and the range. Ascending seq prevents deadlocks between writers. Index: outcome_pkey.
INSERT INTO tidemill.outcome (job_id, seq, owner_id, status, attempts, updated_at)
SELECT %(job_id)s, asked.seq, %(owner_id)s, %(status)s, 0, tidemill.now()
FROM unnest(%(seqs)s::bigint[]) AS asked(seq)
WHERE NOT EXISTS (SELECT 1 FROM tidemill.outcome o
                  WHERE o.job_id = %(job_id)s AND o.seq = asked.seq AND o.seq >= %(lo)s AND o.seq < %(hi)s)
ORDER BY asked.seq
RETURNING seq

-- An outcome that only says a status, for those of some items of a range that have none yet: the ones that leave it
-- by themselves. Under the lock of the job and of the range. Ascending seq, so that no two writers cross.
-- Index: outcome_pkey.
INSERT INTO tidemill.outcome (job_id, seq, owner_id, status, attempts, updated_at)
SELECT %(job_id)s, asked.seq, %(owner_id)s, %(status)s, 0, tidemill.now()
FROM unnest(%(seqs)s::bigint[]) AS asked(seq)
WHERE NOT EXISTS (SELECT 1 FROM tidemill.outcome o
                  WHERE o.job_id = %(job_id)s AND o.seq = asked.seq AND o.seq >= %(lo)s AND o.seq < %(hi)s)
ORDER BY asked.seq
RETURNING seq

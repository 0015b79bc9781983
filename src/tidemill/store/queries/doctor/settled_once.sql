-- 1. A range that is still to run covers no item that moved to a list, so no item is open twice.
SELECT b.job_id, b.id AS batch, l.id AS list FROM tidemill.batch b
JOIN tidemill.batch l ON l.job_id = b.job_id AND l.seqs IS NOT NULL AND l.state IN ('ready', 'leased')
CROSS JOIN LATERAL unnest(l.seqs) AS s(seq)
WHERE b.seqs IS NULL AND b.state IN ('ready', 'leased') AND s.seq >= b.lo AND s.seq < b.hi
  AND NOT EXISTS (SELECT 1 FROM tidemill.outcome o WHERE o.job_id = b.job_id AND o.seq = s.seq)
  AND (%(job_id)s::uuid IS NULL OR b.job_id = %(job_id)s) LIMIT 10

-- 1. No item is in two open lists, or twice in one.
SELECT b.job_id, s.seq, count(*) AS lists FROM tidemill.batch b CROSS JOIN LATERAL unnest(b.seqs) AS s(seq)
WHERE b.state IN ('ready', 'leased') AND b.seqs IS NOT NULL AND (%(job_id)s::uuid IS NULL OR b.job_id = %(job_id)s)
GROUP BY b.job_id, s.seq HAVING count(*) > 1 LIMIT 10

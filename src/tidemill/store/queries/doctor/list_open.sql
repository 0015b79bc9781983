-- 4. Every item of an open list has an outcome with an open status.
SELECT b.job_id, b.id AS batch, s.seq, o.status FROM tidemill.batch b CROSS JOIN LATERAL unnest(b.seqs) AS s(seq)
LEFT JOIN tidemill.outcome o ON o.job_id = b.job_id AND o.seq = s.seq
WHERE b.state IN ('ready', 'leased') AND b.seqs IS NOT NULL
  AND o.status IS DISTINCT FROM CASE WHEN b.retrying THEN 'retry_wait' ELSE 'pending' END
  AND (%(job_id)s::uuid IS NULL OR b.job_id = %(job_id)s) LIMIT 10

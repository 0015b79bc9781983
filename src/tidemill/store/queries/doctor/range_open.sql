-- 4. The open items of a range are the items without an outcome.
SELECT b.job_id, b.id AS batch, b.open, (b.hi - b.lo) - o.n AS counted FROM tidemill.batch b
CROSS JOIN LATERAL (SELECT count(*) AS n FROM tidemill.outcome WHERE job_id = b.job_id AND seq >= b.lo AND seq < b.hi) o
WHERE b.seqs IS NULL AND b.state IN ('ready', 'leased') AND b.open <> (b.hi - b.lo) - o.n
  AND (%(job_id)s::uuid IS NULL OR b.job_id = %(job_id)s) LIMIT 10

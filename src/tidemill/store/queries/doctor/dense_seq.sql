-- 3. The items of a job are exactly 0 … next_seq - 1.
SELECT j.id AS job_id, g.next_seq, i.n, i.last FROM tidemill.job j JOIN tidemill.ingest g ON g.job_id = j.id
CROSS JOIN LATERAL (SELECT count(*) AS n, coalesce(max(seq), -1) AS last FROM tidemill.item WHERE job_id = j.id) i
WHERE j.purged_at IS NULL AND (i.n <> g.next_seq OR i.last <> g.next_seq - 1)
  AND (%(job_id)s::uuid IS NULL OR j.id = %(job_id)s) LIMIT 10

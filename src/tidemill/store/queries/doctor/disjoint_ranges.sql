-- 1. Live ranges of a job (ready, leased, cancelled) never overlap.
SELECT a.job_id, a.id AS batch, b.id AS other FROM tidemill.batch a
JOIN tidemill.batch b ON b.job_id = a.job_id AND b.id > a.id AND b.lo < a.hi AND a.lo < b.hi
WHERE a.seqs IS NULL AND b.seqs IS NULL AND a.state <> 'done' AND b.state <> 'done'
  AND (%(job_id)s::uuid IS NULL OR a.job_id = %(job_id)s) LIMIT 10

-- 4. The reverse: every outcome with an open status is in exactly one open list.
SELECT o.job_id, o.seq, o.status FROM tidemill.outcome o
WHERE o.status IN ('pending', 'retry_wait') AND (%(job_id)s::uuid IS NULL OR o.job_id = %(job_id)s)
  AND EXISTS (SELECT 1 FROM tidemill.job j WHERE j.id = o.job_id)
  AND NOT EXISTS (SELECT 1 FROM tidemill.batch b
                  WHERE b.job_id = o.job_id AND b.state IN ('ready', 'leased') AND b.seqs @> ARRAY[o.seq]) LIMIT 10

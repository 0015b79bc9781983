-- Return the items of a range that have no outcome yet. The anti-join is bounded on both sides, because otherwise the
-- planner may scan every outcome of the job. Index: item_pkey, outcome_pkey.
SELECT i.seq, i.input, 1::smallint, i.defect FROM tidemill.item i
WHERE i.job_id = %(job_id)s AND i.seq >= %(lo)s AND i.seq < %(hi)s
  AND NOT EXISTS (SELECT 1 FROM tidemill.outcome o
                  WHERE o.job_id = %(job_id)s AND o.seq = i.seq AND o.seq >= %(lo)s AND o.seq < %(hi)s)
ORDER BY i.seq

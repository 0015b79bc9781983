-- Items of cancelled ranges that never had an outcome, in order of seq. Index: batch_cover, item_pkey, outcome_pkey.
SELECT i.seq, 'cancelled' AS status, 0 AS attempts, b.since AS updated_at, NULL AS result, NULL AS error, i.input
FROM (SELECT * FROM tidemill.batch
      WHERE job_id = %(job_id)s AND seqs IS NULL AND state = 'cancelled' AND hi > %(after_seq)s::bigint + 1
      ORDER BY hi) b
CROSS JOIN LATERAL (
    SELECT i.seq, i.input FROM tidemill.item i
    WHERE i.job_id = b.job_id AND i.seq >= greatest(b.lo, %(after_seq)s::bigint + 1) AND i.seq < b.hi
      AND NOT EXISTS (SELECT 1 FROM tidemill.outcome o
                      WHERE o.job_id = b.job_id AND o.seq = i.seq AND o.seq >= b.lo AND o.seq < b.hi)
    ORDER BY i.seq LIMIT %(limit)s
) i
ORDER BY b.hi, i.seq LIMIT %(limit)s

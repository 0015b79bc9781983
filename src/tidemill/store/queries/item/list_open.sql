-- A job's open items, from the batch side: first by how long their batch has been ready or leased.
-- Index: batch_unfolded, item_pkey, outcome_pkey.
SELECT b.since AS updated_at, b.id AS batch_id, x.seq,
    CASE b.state WHEN 'leased' THEN 'processing' WHEN 'ready' THEN CASE WHEN b.retrying THEN 'retry_wait' ELSE 'pending' END END AS status,
    x.attempts, b.worker, x.input
FROM (SELECT * FROM tidemill.batch
      WHERE job_id = %(job_id)s AND NOT folded AND state = ANY(%(states)s)
        AND (%(retrying)s::boolean IS NULL OR retrying = %(retrying)s)
        AND (since, id) >= (%(after_since)s, %(after_batch)s)
      ORDER BY since, id) b
CROSS JOIN LATERAL (
    (SELECT i.seq, i.input, 0 AS attempts FROM tidemill.item i
     WHERE b.seqs IS NULL AND i.job_id = b.job_id AND i.seq < b.hi
       AND i.seq >= CASE WHEN b.id = %(after_batch)s THEN greatest(b.lo, %(after_seq)s + 1) ELSE b.lo END
       AND NOT EXISTS (SELECT 1 FROM tidemill.outcome o
                       WHERE o.job_id = b.job_id AND o.seq = i.seq AND o.seq >= b.lo AND o.seq < b.hi)
     ORDER BY i.seq LIMIT %(limit)s)
    UNION ALL
    (SELECT i.seq, i.input, o.attempts FROM unnest(b.seqs) AS s(seq)
     JOIN tidemill.item i ON i.job_id = b.job_id AND i.seq = s.seq
     JOIN tidemill.outcome o ON o.job_id = b.job_id AND o.seq = s.seq
     WHERE b.id <> %(after_batch)s OR s.seq > %(after_seq)s
     ORDER BY s.seq LIMIT %(limit)s)
) x
ORDER BY b.since, b.id, x.seq LIMIT %(limit)s

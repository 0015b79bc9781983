-- Rows of a range that may lose to another row with the same key, and the current input of that row, to compare keys.
-- With seqs, only the listed rows. Index: repeat_pkey, item_pkey, item_fix_pkey.
SELECT r.seq, r.other, r.place, coalesce(f.input, i.input)::text FROM tidemill.repeat r
-- LIMIT: without it, a planner without statistics of a new job scans all of its items for each repeat.
CROSS JOIN LATERAL (SELECT i.input FROM tidemill.item i WHERE i.job_id = r.job_id AND i.seq = r.other LIMIT 1) i
LEFT JOIN LATERAL (
    SELECT f.input FROM tidemill.item_fix f WHERE f.job_id = r.job_id AND f.seq = r.other ORDER BY f.rev DESC LIMIT 1
) f ON true
WHERE r.job_id = %(job_id)s AND r.seq >= %(lo)s AND r.seq <= %(hi)s
  AND (%(seqs)s::bigint[] IS NULL OR r.seq = ANY (%(seqs)s::bigint[]))

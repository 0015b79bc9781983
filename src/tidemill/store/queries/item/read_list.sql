-- The items of a list, with the attempts they had and their newest correction. Index: item_pkey, outcome_pkey,
-- item_fix_pkey.
SELECT i.seq, coalesce(f.input, i.input), o.attempts, CASE WHEN f.input IS NULL THEN i.defect END
FROM unnest(%(seqs)s::bigint[]) AS s(seq)
JOIN tidemill.item i ON i.job_id = %(job_id)s AND i.seq = s.seq
JOIN tidemill.outcome o ON o.job_id = %(job_id)s AND o.seq = s.seq
LEFT JOIN LATERAL (SELECT f.input FROM tidemill.item_fix f WHERE f.job_id = %(job_id)s AND f.seq = s.seq
                   ORDER BY f.rev DESC LIMIT 1) f ON true
ORDER BY s.seq

-- Which rows of a range lose to others of the same key, and what those hold now, corrected or not, to see that the keys are
-- really equal; of a list that is far apart, only what is listed. Index: repeat_pkey, item_pkey, item_fix_pkey.
SELECT r.seq, r.other, r.place, coalesce(f.input, i.input)::text FROM tidemill.repeat r
-- LIMIT: or a planner that has not heard of a new job yet goes through all of its items, to find what each repeats.
CROSS JOIN LATERAL (SELECT i.input FROM tidemill.item i WHERE i.job_id = r.job_id AND i.seq = r.other LIMIT 1) i
LEFT JOIN LATERAL (
    SELECT f.input FROM tidemill.item_fix f WHERE f.job_id = r.job_id AND f.seq = r.other ORDER BY f.rev DESC LIMIT 1
) f ON true
WHERE r.job_id = %(job_id)s AND r.seq >= %(lo)s AND r.seq <= %(hi)s
  AND (%(seqs)s::bigint[] IS NULL OR r.seq = ANY (%(seqs)s::bigint[]))

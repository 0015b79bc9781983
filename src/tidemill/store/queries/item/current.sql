-- Return the current inputs of items: the newest fix, or the submitted input. Index: item_pkey, item_fix_pkey.
SELECT i.seq, coalesce(f.input, i.input)::text FROM unnest(%(seqs)s::bigint[]) AS asked(seq)
CROSS JOIN LATERAL (
    SELECT i.seq, i.input FROM tidemill.item i WHERE i.job_id = %(job_id)s AND i.seq = asked.seq LIMIT 1
) i
LEFT JOIN LATERAL (
    SELECT f.input FROM tidemill.item_fix f WHERE f.job_id = %(job_id)s AND f.seq = asked.seq ORDER BY f.rev DESC LIMIT 1
) f ON true

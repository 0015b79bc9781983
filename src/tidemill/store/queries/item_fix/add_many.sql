-- Add the next revision of the inputs of many items, maybe by a repair. Requires the lock of their job. Index:
-- item_fix_pkey.
INSERT INTO tidemill.item_fix (job_id, seq, rev, input, by, operation_id)
SELECT %(job_id)s, u.seq,
    1 + coalesce((SELECT max(f.rev) FROM tidemill.item_fix f WHERE f.job_id = %(job_id)s AND f.seq = u.seq), 0),
    u.input::json, %(by)s, %(operation_id)s
FROM unnest(%(seqs)s::bigint[], %(inputs)s::text[]) AS u(seq, input)

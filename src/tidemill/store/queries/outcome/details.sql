-- Return the details of the outcomes of some items, if they have any. Index: outcome_pkey.
SELECT o.seq, o.details FROM unnest(%(seqs)s::bigint[]) AS asked(seq)
CROSS JOIN LATERAL (
    SELECT o.seq, o.details FROM tidemill.outcome o
    WHERE o.job_id = %(job_id)s AND o.seq = asked.seq AND o.details IS NOT NULL LIMIT 1
) o

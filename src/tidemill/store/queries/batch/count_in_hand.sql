-- Count how many of the given items of a job a worker has leased. Index: batch_turning, outcome_pkey.
SELECT count(DISTINCT found.seq) FROM (
    SELECT x.seq FROM tidemill.batch b CROSS JOIN LATERAL unnest(b.seqs) AS x(seq)
    WHERE b.job_id = %(job_id)s AND b.state = 'leased' AND b.seqs IS NOT NULL AND x.seq = ANY(%(seqs)s::bigint[])
    UNION ALL
    SELECT asked.seq FROM tidemill.batch b JOIN unnest(%(seqs)s::bigint[]) AS asked(seq) ON asked.seq >= b.lo AND asked.seq < b.hi
    WHERE b.job_id = %(job_id)s AND b.state = 'leased' AND b.seqs IS NULL
      AND NOT EXISTS (SELECT 1 FROM tidemill.outcome o WHERE o.job_id = b.job_id AND o.seq = asked.seq)
) found

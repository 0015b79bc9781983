-- List the lists of a job that wait for a retry, each with its requested items, and lock them until the transaction
-- ends. Index: batch_open_job.
WITH held AS (
    SELECT * FROM tidemill.batch
    WHERE job_id = %(job_id)s AND state = 'ready' AND retrying AND seqs IS NOT NULL AND not_before > tidemill.now()
      AND lo <= %(last)s AND hi > %(first)s
    ORDER BY id FOR UPDATE
)
SELECT h.id, h.owner_id, h.kind, h.seqs, h.isolated, h.crashes, array_agg(x.seq ORDER BY x.seq) AS chosen
FROM held h CROSS JOIN LATERAL unnest(h.seqs) AS x(seq) JOIN unnest(%(seqs)s::bigint[]) AS asked(seq) ON asked.seq = x.seq
GROUP BY h.id, h.owner_id, h.kind, h.seqs, h.isolated, h.crashes ORDER BY h.id

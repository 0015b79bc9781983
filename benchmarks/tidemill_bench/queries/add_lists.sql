-- Creates the lists of a large job: one list per range for items that wait for a retry, as a flush does; lists of 1,000
-- for requeued items, some of them cancelled, as a reprocess does. Every fiftieth open list is leased.
INSERT INTO tidemill.batch (job_id, owner_id, kind, state, lo, hi, seqs, open, cancelled, not_before, since, retrying,
    lease_id, lease_until, worker, closed_at)
SELECT j.id, j.owner_id, j.kind, l.state, l.lo, l.hi, CASE l.state WHEN 'done' THEN '{}' ELSE l.seqs END,
    CASE l.state WHEN 'done' THEN 0 ELSE l.n END, CASE l.state WHEN 'done' THEN l.n ELSE 0 END,
    l.at + interval '1 day', CASE l.state WHEN 'leased' THEN tidemill.now() ELSE l.at END, l.status = 'retry_wait',
    CASE l.state WHEN 'leased' THEN gen_random_uuid() END,
    CASE l.state WHEN 'leased' THEN tidemill.now() + interval '1 day' END,
    CASE l.state WHEN 'leased' THEN 'bench' END, CASE l.state WHEN 'done' THEN l.at END
FROM tidemill.job j
JOIN (
    SELECT job_id, status, min(seq) AS lo, max(seq) + 1 AS hi, array_agg(seq ORDER BY seq) AS seqs, count(*) AS n,
        max(updated_at) AS at,
        CASE WHEN status = 'cancelled' THEN 'done' WHEN number %% 50 = 3 THEN 'leased' ELSE 'ready' END AS state
    FROM (
        SELECT job_id, status, seq, updated_at, CASE status WHEN 'retry_wait' THEN seq / %(size)s
            ELSE row_number() OVER (PARTITION BY status ORDER BY seq) / 1000 END AS number
        FROM tidemill.outcome WHERE job_id = %(job_id)s AND status IN ('retry_wait', 'cancelled', 'pending')
    ) o
    GROUP BY job_id, status, number
) l ON l.job_id = j.id

-- Return the columns of jobs that lists of open items show, without computing all counts. Index: job_pkey,
-- batch_open_job, limiter_pkey.
SELECT j.id, j.key, j.kind, j.owner_id, j.intent, j.ingest_done, j.closed_as,
    l.name AS limiter, CASE WHEN l.blocked_until > tidemill.now() THEN l.blocked_until END AS blocked_until,
    coalesce(g.next_seq, 0) AS total,
    (SELECT coalesce(sum(b.open), 0) FROM tidemill.batch b
     WHERE b.job_id = j.id AND b.state = 'ready' AND NOT b.retrying)::bigint AS pending
FROM tidemill.job j LEFT JOIN tidemill.ingest g ON g.job_id = j.id
LEFT JOIN tidemill.kind k ON k.name = j.kind
LEFT JOIN tidemill.limiter l ON l.name = coalesce(k.options->>'limiter', j.limiter) AND l.key = ''
WHERE j.id = ANY(%(ids)s)

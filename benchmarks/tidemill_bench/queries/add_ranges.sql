-- Creates the ranges of a large job, with the tallies of their outcomes: first settled, then leased, released,
-- cancelled and finally unclaimed ranges.
INSERT INTO tidemill.batch (job_id, owner_id, kind, state, lo, hi, open, done, not_found, skipped, failed, cancelled,
    retried, codes, since, lease_id, lease_until, worker, flush_no, closed_at)
SELECT j.id, j.owner_id, j.kind, r.state, r.lo, r.hi,
    CASE WHEN r.state IN ('ready', 'leased') THEN r.hi - r.lo - coalesce(o.n, 0) ELSE 0 END,
    coalesce(o.done, 0), coalesce(o.not_found, 0), coalesce(o.skipped, 0), coalesce(o.failed, 0),
    CASE r.state WHEN 'cancelled' THEN r.hi - r.lo ELSE 0 END, coalesce(o.listed, 0), o.codes,
    CASE r.state WHEN 'leased' THEN tidemill.now() ELSE j.created_at + r.number * interval '10 milliseconds' END,
    CASE r.state WHEN 'leased' THEN gen_random_uuid() END,
    CASE r.state WHEN 'leased' THEN tidemill.now() + interval '1 day' END,
    CASE r.state WHEN 'leased' THEN 'bench' END, CASE WHEN o.n IS NULL THEN 0 ELSE 1 END,
    CASE WHEN r.state IN ('done', 'cancelled') THEN j.created_at + r.number * interval '50 milliseconds' END
FROM tidemill.job j
CROSS JOIN (
    SELECT number, number * %(size)s::bigint AS lo, least((number + 1) * %(size)s::bigint, %(items)s) AS hi,
        CASE WHEN number < %(settled)s THEN 'done' WHEN number < %(leased)s THEN 'leased' WHEN number < %(begun)s THEN 'ready'
            WHEN number < %(cancelled)s THEN 'cancelled' ELSE 'ready' END AS state
    FROM generate_series(0, (%(items)s::bigint - 1) / %(size)s) AS number
) r
LEFT JOIN (
    SELECT seq / %(size)s AS number, count(*) AS n, count(*) FILTER (WHERE status = 'done') AS done,
        count(*) FILTER (WHERE status = 'not_found') AS not_found, count(*) FILTER (WHERE status = 'skipped') AS skipped,
        count(*) FILTER (WHERE status = 'failed') AS failed,
        count(*) FILTER (WHERE status IN ('retry_wait', 'cancelled', 'pending')) AS listed,
        nullif(jsonb_strip_nulls(jsonb_build_object(
            'timeout', nullif(count(*) FILTER (WHERE status = 'failed' AND error->>'code' = 'timeout'), 0),
            'invalid', nullif(count(*) FILTER (WHERE status = 'failed' AND error->>'code' = 'invalid'), 0))), '{}') AS codes
    FROM tidemill.outcome WHERE job_id = %(job_id)s GROUP BY 1
) o USING (number)
WHERE j.id = %(job_id)s

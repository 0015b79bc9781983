-- Creates the outcomes of all items in settled ranges, and of the first half of each leased or released range. Of fifty
-- items, one has each status other than done. Only one item in a thousand is skipped, so that these are far apart.
INSERT INTO tidemill.outcome (job_id, seq, owner_id, status, attempts, updated_at, result, error, duration_ms)
SELECT t.job_id, t.seq, t.owner_id, t.status, CASE t.status WHEN 'done' THEN 1 ELSE 2 END, t.at,
    CASE t.status WHEN 'done' THEN
        jsonb_build_object('title', 'Offer ' || t.seq, 'price', t.seq * 13 %% 10000 / 100.0, 'currency', 'EUR') END,
    CASE WHEN t.status IN ('failed', 'retry_wait', 'pending') THEN
        json_build_object('code', CASE t.seq / 50 %% 2 WHEN 0 THEN 'timeout' ELSE 'invalid' END,
            'reason', 'the shop did not answer within 30 s', 'retryable', t.seq / 50 %% 2 = 0) END,
    t.seq %% 400
FROM (
    SELECT j.id AS job_id, n.seq, j.owner_id, j.created_at + n.seq / %(size)s * interval '50 milliseconds' AS at,
        CASE n.seq %% 50 WHEN 3 THEN 'failed' WHEN 11 THEN 'not_found' WHEN 27 THEN 'retry_wait' WHEN 35 THEN 'cancelled'
            WHEN 43 THEN 'pending' ELSE CASE n.seq %% 1000 WHEN 19 THEN 'skipped' ELSE 'done' END END AS status
    FROM tidemill.job j CROSS JOIN generate_series(0, %(items)s::bigint - 1) AS n(seq)
    WHERE j.id = %(job_id)s AND (n.seq / %(size)s < %(settled)s
        OR (n.seq / %(size)s < %(begun)s AND n.seq %% %(size)s < %(size)s / 2))
) t

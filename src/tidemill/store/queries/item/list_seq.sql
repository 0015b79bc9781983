-- List a window of a job's items in order of seq, each with its derived status. The status comes from the outcome or,
-- without one, from the live range that covers the item. Live ranges do not overlap, so the ranges that end in the
-- window and the next one suffice. In a sparse job, items outside live ranges are done. Item rows are read only for the
-- page. The filter on stored statuses is written so that no index matches it: an index on status would scan more rows
-- than the window has. Index: outcome_pkey, batch_cover, batch_turning, batch_open_job, item_pkey, item_fix_pkey.
WITH live AS (
    SELECT lo, hi, state, worker, since, closed_at FROM tidemill.batch
    WHERE job_id = %(job_id)s AND seqs IS NULL AND state <> 'done' AND hi > %(lo)s AND hi <= %(hi)s
    UNION ALL
    (SELECT lo, hi, state, worker, since, closed_at FROM tidemill.batch
     WHERE job_id = %(job_id)s AND seqs IS NULL AND state <> 'done' AND hi > %(hi)s ORDER BY hi LIMIT 1)
), stretch AS (
    SELECT lo, hi, CASE state WHEN 'leased' THEN 'processing' WHEN 'ready' THEN 'pending' ELSE state END AS status,
        CASE state WHEN 'leased' THEN worker END AS locked_by, CASE state WHEN 'leased' THEN since END AS locked_at,
        greatest(since, closed_at) AS since
    FROM live
    UNION ALL
    SELECT lag(hi, 1, %(lo)s::bigint) OVER (ORDER BY hi), lo, 'done', NULL, NULL, NULL
    FROM (SELECT lo, hi FROM live UNION ALL SELECT %(hi)s, 9223372036854775807) bound
    WHERE %(sparse)s
), taken AS MATERIALIZED ( -- evaluate once, not per item
    SELECT s.seq, b.worker, b.since FROM tidemill.batch b CROSS JOIN LATERAL unnest(b.seqs) AS s(seq)
    WHERE b.job_id = %(job_id)s AND b.state = 'leased' AND b.seqs IS NOT NULL AND b.lo < %(hi)s AND b.hi > %(lo)s
), told AS (
    SELECT o.seq, CASE WHEN t.seq IS NULL THEN o.status ELSE 'processing' END AS status, t.worker AS locked_by,
        t.since AS locked_at, greatest(o.updated_at, t.since) AS since, o.status AS stored, o.attempts, o.updated_at,
        o.result, o.error, o.duration_ms
    FROM tidemill.outcome o
    LEFT JOIN taken t ON t.seq = o.seq AND o.status IN ('pending', 'retry_wait')
    WHERE o.job_id = %(job_id)s AND o.seq >= %(lo)s AND o.seq < %(hi)s
      AND (%(stored)s::text[] IS NULL OR array_position(%(stored)s, o.status) IS NOT NULL)
      AND (%(among)s::bigint[] IS NULL OR o.seq = ANY(%(among)s))
      AND (%(codes)s::text[] IS NULL OR (o.status = 'failed' AND o.error->>'code' = ANY(%(codes)s)))
), page AS (
    (SELECT * FROM told WHERE %(statuses)s::text[] IS NULL OR status = ANY(%(statuses)s) ORDER BY seq LIMIT %(limit)s)
    UNION ALL
    (SELECT n.seq, c.status, c.locked_by, c.locked_at, c.since, NULL, 0::smallint, NULL, NULL, NULL, NULL
     FROM stretch c CROSS JOIN LATERAL generate_series(greatest(c.lo, %(lo)s), least(c.hi, %(hi)s) - 1) AS n(seq)
     WHERE (%(statuses)s::text[] IS NULL OR c.status = ANY(%(statuses)s)) AND %(codes)s::text[] IS NULL
       AND (%(among)s::bigint[] IS NULL OR n.seq = ANY(%(among)s))
       AND NOT EXISTS (SELECT 1 FROM tidemill.outcome o
                       WHERE o.job_id = %(job_id)s AND o.seq = n.seq AND o.seq >= %(lo)s AND o.seq < %(hi)s)
     ORDER BY n.seq LIMIT %(limit)s)
    ORDER BY seq LIMIT %(limit)s
)
SELECT p.seq, p.job_id || ':' || p.seq AS id, p.status, p.attempts, p.locked_by,
    p.locked_at, greatest(p.since, w.since, p.at) AS updated_at,
    CASE p.status WHEN 'retry_wait' THEN w.not_before END AS due_at, tidemill.shown(p.result) AS result,
    p.result IS NOT NULL AND tidemill.shown(p.result) IS NULL AS result_cut, p.error, p.duration_ms, f.rev,
    s.summary AS input_summary
FROM (
    SELECT page.*, i.job_id, i.input, i.at FROM page CROSS JOIN LATERAL (
        SELECT i.job_id, i.input, i.at FROM tidemill.item i WHERE i.job_id = %(job_id)s AND i.seq = page.seq LIMIT 1
    ) i
) p
-- A list is slightly newer than the outcomes of its items, so the search starts at their time and stays short.
LEFT JOIN LATERAL (
    SELECT b.not_before, b.since FROM (
        SELECT b.not_before, b.since, b.lo, b.hi, b.seqs FROM tidemill.batch b
        WHERE p.stored IN ('pending', 'retry_wait') AND p.locked_by IS NULL AND b.job_id = p.job_id AND b.state = 'ready'
          AND b.retrying = (p.stored = 'retry_wait') AND b.since >= p.updated_at
        ORDER BY b.since, b.id LIMIT 64
    ) b
    WHERE b.lo <= p.seq AND b.hi > p.seq AND b.seqs @> ARRAY[p.seq] LIMIT 1
) w ON true
LEFT JOIN LATERAL (
    SELECT f.rev, f.input FROM tidemill.item_fix f WHERE f.job_id = p.job_id AND f.seq = p.seq ORDER BY f.rev DESC LIMIT 1
) f ON true
CROSS JOIN LATERAL tidemill.summed_up(coalesce(f.input, p.input)) s
ORDER BY p.seq

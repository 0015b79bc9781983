-- The state of watches. An index-only scan counts their files. Index: watch_pkey, watch_file_state.
SELECT w.name, w.scanned_at, w.due_at, w.found, w.submitted, w.problem, w.failures,
    w.lease_until > tidemill.now() AS is_scanning, coalesce(c.counts, '{}') AS counts
FROM tidemill.watch w
LEFT JOIN LATERAL (
    SELECT jsonb_object_agg(s.state, s.n) AS counts
    FROM (SELECT state, count(*) AS n FROM tidemill.watch_file WHERE watch = w.name GROUP BY state) s
) c ON true
WHERE w.name = ANY(%(names)s) ORDER BY w.name

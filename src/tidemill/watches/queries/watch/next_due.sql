-- In how many seconds somebody has to look again; NULL if nobody has to. Few rows, read whole.
SELECT extract(epoch FROM min(least(CASE WHEN name = ANY(%(scheduled)s) THEN due_at ELSE 'infinity' END, settle_at))
    FILTER (WHERE isfinite(least(CASE WHEN name = ANY(%(scheduled)s) THEN due_at ELSE 'infinity' END, settle_at)))
    - tidemill.now())::float8
FROM tidemill.watch WHERE name = ANY(%(names)s) AND (lease_until IS NULL OR lease_until < tidemill.now())

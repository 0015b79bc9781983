-- Seconds until the next watch is due; NULL if none will be. Sequential scan of a small table.
SELECT extract(epoch FROM min(least(CASE WHEN name = ANY(%(scheduled)s) THEN due_at ELSE 'infinity' END, settle_at))
    FILTER (WHERE isfinite(least(CASE WHEN name = ANY(%(scheduled)s) THEN due_at ELSE 'infinity' END, settle_at)))
    - tidemill.now())::float8
FROM tidemill.watch WHERE name = ANY(%(names)s) AND (lease_until IS NULL OR lease_until < tidemill.now())

-- All limiters with their limits, totals, slots in use, waiting items and blocks; members are summed up.
SELECT l.name, l.rate, l.burst, l.concurrency, l.adaptive, l.rate * l.share AS current_rate, l.share, l.taken, l.refused,
    CASE WHEN l.blocked_until > tidemill.now() THEN l.blocked_until END AS blocked_until, m.members, m.blocked_members,
    (SELECT coalesce(sum(h.held), 0) FROM tidemill.limiter_hold h
     WHERE h.name = l.name AND h.until > tidemill.now())::integer AS in_use,
    (SELECT coalesce(sum((c.value->'waiting'->>l.name)::integer), 0)
     FROM tidemill.worker w CROSS JOIN LATERAL jsonb_array_elements(w.info->'adaptive') c
     WHERE w.seen_at > tidemill.now() - interval '30 seconds')::integer AS waiting,
    l.declared <> jsonb_build_object('rate', l.rate, 'burst', l.burst, 'concurrency', l.concurrency,
        'adaptive', l.adaptive, 'lowest', l.lowest) AS changed, l.used_at
FROM tidemill.limiter l CROSS JOIN LATERAL (
    SELECT count(*)::integer AS members,
        count(*) FILTER (WHERE k.blocked_until > tidemill.now())::integer AS blocked_members
    FROM tidemill.limiter k WHERE k.name = l.name AND k.key <> ''
) m
WHERE l.key = '' AND (%(name)s::text IS NULL OR l.name = %(name)s) ORDER BY l.name

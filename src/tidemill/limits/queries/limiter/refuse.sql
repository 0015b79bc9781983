-- Block a limiter after a throttled call. The rate is halved only if the call started after the rate was last halved,
-- and at most once per second. Accumulated permits are discarded, so that a single call starts after the block.
-- Index: limiter_pkey.
WITH l AS (
    SELECT name, key, tidemill.now() AS moment,
        adaptive AND coalesce(cut_at < tidemill.now() - greatest(%(age)s, 1) * interval '1 second', true) AS cuts
    FROM tidemill.limiter WHERE name = %(name)s AND key = %(key)s FOR UPDATE
)
UPDATE tidemill.limiter SET
    refused = refused + %(times)s,
    blocked_until = greatest(blocked_until, l.moment + %(after)s * interval '1 second'),
    share = CASE WHEN cuts THEN greatest(lowest, share / 2) ELSE share END,
    share_at = l.moment,
    cut_at = CASE WHEN cuts THEN l.moment ELSE cut_at END,
    level = least(level + greatest(0, extract(epoch FROM l.moment) - at) * coalesce(pace * share, 0), 1),
    at = greatest(at, extract(epoch FROM l.moment), extract(epoch FROM l.moment) + %(after)s),
    spare = '{}',
    used_at = l.moment
FROM l WHERE limiter.name = l.name AND limiter.key = l.key
RETURNING greatest(0, extract(epoch FROM limiter.blocked_until - l.moment))::float8 AS blocked, limiter.share, l.cuts

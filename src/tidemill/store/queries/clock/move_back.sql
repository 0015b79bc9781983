-- Move planned times back after the clock was set back by `seconds`, so that they are as far away as before. A lease
-- keeps at least `lease` seconds, in which its holder renews it. Times of the past that are in the future now become the
-- present, so that the jump is not detected again. Sequential scans: this runs once for each jump.
WITH clock AS (
    SELECT tidemill.now() AS now, %(seconds)s * interval '1 second' AS ahead,
        tidemill.now() + %(lease)s * interval '1 second' AS renewed
), batches AS (
    UPDATE tidemill.batch b SET since = least(b.since, clock.now),
        not_before = CASE WHEN b.not_before > clock.now THEN b.not_before - clock.ahead ELSE b.not_before END,
        lease_until = least(b.lease_until, greatest(b.lease_until - clock.ahead, clock.renewed))
    FROM clock WHERE b.id IN (SELECT id FROM tidemill.batch WHERE state IN ('ready', 'leased')
                                AND greatest(since, not_before, lease_until) > (SELECT now FROM clock)
                              ORDER BY id FOR UPDATE)
), ingests AS (
    UPDATE tidemill.ingest g SET lease_until = least(g.lease_until, greatest(g.lease_until - clock.ahead, clock.renewed))
    FROM clock WHERE g.lease_until > clock.now
), watches AS (
    UPDATE tidemill.watch w SET due_at = CASE WHEN w.due_at > clock.now THEN w.due_at - clock.ahead ELSE w.due_at END,
        settle_at = CASE WHEN w.settle_at > clock.now THEN w.settle_at - clock.ahead ELSE w.settle_at END,
        lease_until = least(w.lease_until, greatest(w.lease_until - clock.ahead, clock.renewed))
    FROM clock
), hints AS (
    UPDATE tidemill.outbox o SET claimed_until = o.claimed_until - clock.ahead
    FROM clock WHERE o.claimed_until > clock.now
), limiters AS (
    UPDATE tidemill.limiter l SET at = least(l.at, extract(epoch FROM clock.now)), spare = '{}',
        blocked_until = CASE WHEN l.blocked_until > clock.now THEN l.blocked_until - clock.ahead ELSE l.blocked_until END,
        share_at = least(l.share_at, clock.now), used_at = least(l.used_at, clock.now),
        cut_at = least(l.cut_at, clock.now), crowded_at = least(l.crowded_at, clock.now)
    FROM clock
), slots AS (
    UPDATE tidemill.limiter_hold h SET until = least(h.until, greatest(h.until - clock.ahead, clock.renewed)) FROM clock
)
UPDATE tidemill.worker w SET seen_at = least(w.seen_at, clock.now) FROM clock

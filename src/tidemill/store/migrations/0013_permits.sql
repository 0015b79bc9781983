-- Permits that begin at one moment, as those of a burst do, are told apart when they were given back. What is more than
-- a second's worth is written down before it is given: a crash of the server does not give a burst twice.

-- Permits of a limiter and places in it, for one process, by the clock that is read when the row is locked. The n-th
-- permit is good from its start on, `base + (n - level) / rate` or at once; only those that start within `reach` are given.
-- Whoever gets none is told when to come again. A process says how many places it has, not how many more: one whose answer
-- was lost asks again, and has them. No row: there is no such limiter, or member.
CREATE OR REPLACE FUNCTION tidemill.take_permits(
    p_name text, p_key text, p_wanted integer, p_lead float8, p_reach float8,
    p_worker text, p_child integer, p_member text, p_places integer, p_held integer, p_idle integer, p_seconds float8
) RETURNS TABLE (clock float8, starts float8[], places integer, wait float8, blocked float8, slack float8, pace float8,
                 crowded boolean, counted boolean) LANGUAGE plpgsql AS $$
DECLARE
    l          tidemill.limiter;
    moment     timestamptz;
    rate       float8;
    base       float8;
    room       integer := 0;
    others     integer;
    mine       integer;
    wanted     integer := p_wanted;
    n          integer := 0;
    next_start float8;
    good       float8[];
    reused     float8[] := '{}';
    at_once    float8 := 0;
BEGIN
    SELECT * INTO l FROM tidemill.limiter WHERE name = p_name AND key = p_key FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    moment := tidemill.now();
    clock := extract(epoch FROM moment);
    starts := '{}';
    places := 0;
    wait := 0;
    slack := l.slack;
    blocked := greatest(0, extract(epoch FROM l.blocked_until - moment));
    rate := l.pace * l.share;
    l.share := least(1, l.share + greatest(0, extract(epoch FROM moment - l.share_at)) * 0.01);
    crowded := coalesce(l.crowded_at > moment - interval '1 second', false);
    counted := l.concurrency IS NOT NULL;
    IF counted AND blocked = 0 THEN
        SELECT coalesce(sum(h.held) FILTER (WHERE (h.worker, h.child, h.member) <> (p_worker, p_child, p_member)), 0),
            coalesce(sum(h.held) FILTER (WHERE (h.worker, h.child, h.member) = (p_worker, p_child, p_member)), 0) INTO others, mine
        FROM tidemill.limiter_hold h WHERE h.name = p_name AND h.key = p_key AND h.until > moment;
        room := greatest(0, least(p_places, greatest(1, floor(l.concurrency * l.share))::integer - others - p_held));
        IF p_held + room <> mine THEN
            INSERT INTO tidemill.limiter_hold AS h (name, key, worker, child, member, held, until)
            VALUES (p_name, p_key, p_worker, p_child, p_member, p_held + room, moment + p_seconds * interval '1 second')
            ON CONFLICT (name, key, worker, child, member) DO UPDATE SET until = excluded.until, held = excluded.held;
        END IF;
        places := room;
        IF room < p_places THEN
            l.crowded_at := moment;
        END IF;
        wanted := least(wanted, p_idle + places);
    END IF;
    IF l.pace IS NOT NULL AND blocked = 0 AND wanted > 0 THEN
        good := array(SELECT s FROM unnest(l.spare) s WHERE s > clock + p_lead - l.slack / 2 ORDER BY s);
        reused := good[:wanted];
        l.spare := array(SELECT s FROM unnest(l.spare) s WHERE s > clock - l.slack AND s <= clock + p_lead - l.slack / 2)
            || good[wanted + 1:];
        wanted := wanted - cardinality(reused);
        base := greatest(l.at, clock + p_lead);
        l.level := least(l.depth, l.level + (base - l.at) * rate);
        l.at := base;
        n := least(wanted, greatest(0, floor(l.level + (clock + p_lead + p_reach - base) * rate))::integer);
        starts := reused || array(SELECT base + greatest(0, (i - l.level) / rate) FROM generate_series(1, n) i);
        at_once := greatest(0, l.level) + cardinality(reused);
        l.level := l.level - n;
        next_start := base + greatest(0, (1 - l.level) / rate);
    END IF;
    IF l.pace IS NOT NULL AND wanted > 0 AND cardinality(starts) = 0 THEN
        -- Whoever comes again takes all there is: of many, it is enough when some come, and the others a little later.
        wait := greatest(coalesce(next_start - clock, 0), blocked) - p_lead - p_reach / 2
            + random() * l.turned_away / rate / 2;
        wait := greatest(0.001, blocked, wait);
        l.turned_away := least(l.turned_away + 1, 1000);
    ELSIF blocked > 0 THEN
        wait := blocked;
    ELSE
        l.turned_away := 0;
    END IF;
    -- A crash of the server forgets what was not yet written down, and gives it again: no more than came in a second.
    IF cardinality(starts) = 0 OR at_once <= rate THEN
        PERFORM set_config('synchronous_commit', 'off', true);  -- of this transaction
    END IF;
    pace := l.pace * l.share;
    UPDATE tidemill.limiter SET level = l.level, at = l.at, turned_away = l.turned_away, spare = l.spare, share = l.share,
        share_at = moment, crowded_at = l.crowded_at, used_at = moment,
        taken = taken + greatest(cardinality(starts), CASE WHEN l.pace IS NULL THEN places ELSE 0 END)
    WHERE name = p_name AND key = p_key;
    RETURN NEXT;
END
$$;

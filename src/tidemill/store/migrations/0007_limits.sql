-- Limiters: how often, and how many at a time, everybody together may call somebody. One row each, the only truth; a
-- member (name, key) has a row of its own while it is used. Moments of the bucket are seconds since 1970, by tidemill.now().
CREATE TABLE tidemill.limiter (
    name          text NOT NULL,
    key           text NOT NULL DEFAULT '',
    declared      jsonb NOT NULL,
    rate          float8,
    burst         integer NOT NULL,
    concurrency   integer,
    adaptive      boolean NOT NULL,
    lowest        float8 NOT NULL,
    pace          float8,
    depth         float8 NOT NULL,
    slack         float8 NOT NULL,
    share         float8 NOT NULL DEFAULT 1,
    share_at      timestamptz NOT NULL DEFAULT tidemill.now(),
    cut_at        timestamptz,
    blocked_until timestamptz,
    level         float8 NOT NULL,
    at            float8 NOT NULL DEFAULT extract(epoch FROM tidemill.now()),
    turned_away   integer NOT NULL DEFAULT 0,
    spare         float8[] NOT NULL DEFAULT '{}',
    crowded_at    timestamptz,
    taken         bigint NOT NULL DEFAULT 0,
    refused       bigint NOT NULL DEFAULT 0,
    used_at       timestamptz NOT NULL DEFAULT tidemill.now(),
    PRIMARY KEY (name, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01);

-- Who has how many of a limiter's places. A worker keeps those of its children alive; others run out. `member` is what the
-- process calls it: beyond so many, several count against one `key`.
CREATE TABLE tidemill.limiter_hold (
    name   text NOT NULL,
    key    text NOT NULL,
    worker text NOT NULL,
    child  integer NOT NULL,
    member text NOT NULL,
    held   integer NOT NULL CHECK (held >= 0),
    until  timestamptz NOT NULL,
    PRIMARY KEY (name, key, worker, child, member)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01);
CREATE INDEX limiter_hold_worker ON tidemill.limiter_hold (worker);

-- Permits of a limiter and places in it, for one process, by the clock that is read when the row is locked. The n-th
-- permit is good from its start on, `base + (n - level) / rate` or at once; only those that start within `reach` are given.
-- Whoever gets none is told when to come again. A process says how many places it has, not how many more: one whose answer
-- was lost asks again, and has them. No row: there is no such limiter, or member.
CREATE FUNCTION tidemill.take_permits(
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
    reused     float8[] := '{}';
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);  -- of this transaction: a permit lost in a crash is lost
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
        SELECT coalesce(array_agg(s ORDER BY s), '{}') INTO reused
            FROM (SELECT s FROM unnest(l.spare) s WHERE s > clock + p_lead - l.slack / 2 ORDER BY s LIMIT wanted) one;
        l.spare := array(SELECT s FROM unnest(l.spare) s WHERE s > clock - l.slack AND s <> ALL (reused));
        wanted := wanted - cardinality(reused);
        base := greatest(l.at, clock + p_lead);
        l.level := least(l.depth, l.level + (base - l.at) * rate);
        l.at := base;
        n := least(wanted, greatest(0, floor(l.level + (clock + p_lead + p_reach - base) * rate))::integer);
        starts := reused || array(SELECT base + greatest(0, (i - l.level) / rate) FROM generate_series(1, n) i);
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
    pace := l.pace * l.share;
    UPDATE tidemill.limiter SET level = l.level, at = l.at, turned_away = l.turned_away, spare = l.spare, share = l.share,
        share_at = moment, crowded_at = l.crowded_at, used_at = moment,
        taken = taken + greatest(cardinality(starts), CASE WHEN l.pace IS NULL THEN places ELSE 0 END)
    WHERE name = p_name AND key = p_key;
    RETURN NEXT;
END
$$;

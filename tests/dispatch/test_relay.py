"""From the transaction of a submission to the broker: nothing is forgotten, and nothing stands in the way of others."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis

from brokers import Broker
from dispatch.scenes import Ear
from support import add_job, eventually, rows, shift_clock, take
from telemetry.hearing import Told
from tidemill.dispatch.relay import MAX_ATTEMPTS, Relay
from tidemill.domain.errors import BrokerLost
from tidemill.engine.sweep import Maintenance
from tidemill.store import bench, delete, jobs, outbox
from tidemill.store.database import Database
from tidemill.store.submit import Submission, run_async, submission
from tidemill.telemetry.events import subscribe
from traps.scenes import rows_looked_at

Listen = Callable[..., Ear]
Make = Callable[..., Any]
WAITING = "SELECT job_id, hints, claimed_by IS NOT NULL FROM tidemill.outbox ORDER BY id"


async def waiting(db: Database) -> list[tuple[UUID, int, bool]]:
    return [(job_id, hints, taken) for job_id, hints, taken in await rows(db, WAITING)]


async def test_without_a_broker_nothing_is_written(db: Database) -> None:
    await add_job(db, 10)
    assert await waiting(db) == []


async def test_a_hint_is_part_of_the_submission(db: Database) -> None:
    await db.run(outbox.register, "redis")
    async with db.transaction() as conn:
        await run_async(conn, submission(Submission("test"), [b"1"]))
        await conn.rollback()
        await conn.execute(b"BEGIN")
    assert await waiting(db) == []
    job_id = await add_job(db, 10)
    assert await waiting(db) == [(job_id, 1, False)]


async def test_hints_are_claimed_by_their_index_though_the_planner_believes_that_there_are_none(db: Database) -> None:
    """After a vacuum of an empty outbox a join would compare each hint with each: seconds for a thousand of them."""
    await db.run(bench.add_hints, "test", 5_000)
    await rows(db, "UPDATE pg_class SET relpages = 4, reltuples = 0 WHERE oid = 'tidemill.outbox'::regclass")
    seen = await rows_looked_at(db, "outbox/claim", {"worker": "w", "limit": 100, "seconds": 30})
    assert seen["outbox"] == 200  # once to choose, once to claim


async def test_it_says_how_many_workers_are_worth_waking(db: Database) -> None:
    await db.run(outbox.register, "redis")
    for items, batch_size, hints in (
        (1, 1, 1),
        (5, 1, 5),
        (100, 1, 16),
        (50, 1_000, 1),
        (51, 1_000, 2),
        (900, 900, 16),
    ):
        job_id = await add_job(db, items, batch_size=batch_size)
        assert (await waiting(db))[-1] == (job_id, hints, False)
        batches = (await rows(db, "SELECT batches FROM tidemill.outbox WHERE job_id = %s", job_id))[0][0]
        assert len(batches) == min(16, -(-items // batch_size))


async def test_there_is_one_hint_a_job_until_somebody_takes_it(db: Database) -> None:
    await db.run(outbox.register, "redis")
    job_id = await add_job(db, 3, batch_size=1)
    for _ in range(3):
        await db.run(jobs.pause, job_id)
        await db.run(jobs.resume, job_id)
    assert await waiting(db) == [(job_id, 3, False)]
    await db.run(outbox.claim, "w1", limit=10, seconds=30)
    await db.run(jobs.pause, job_id)
    await db.run(jobs.resume, job_id)
    assert await waiting(db) == [(job_id, 3, True), (job_id, 3, False)]


async def test_every_copy_is_sent_and_the_outbox_is_empty(
    db: Database, broker: str, dispatchers: Make, ears: Listen
) -> None:
    dispatcher = dispatchers(broker)
    many, one = await add_job(db, 100, batch_size=1), await add_job(db, 1)
    relay = Relay(db, dispatcher, "w1", "redis")
    assert await relay.send() == 2
    assert await waiting(db) == []
    ear = ears(dispatcher)

    async def all_heard() -> bool:
        return len(ear.heard) == 17

    await eventually(all_heard)
    assert (ear.heard.count(many), ear.heard.count(one)) == (16, 1)
    assert ear.refused == []


async def test_the_envelope_carries_the_trace_of_the_job(db: Database, redis: str, dispatchers: Make) -> None:
    dispatcher = dispatchers(redis)
    traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await add_job(db, 1, traceparent=traced)
    sent: list[Any] = []
    dispatch = dispatcher.dispatch

    async def keep(envelopes: list[Any]) -> Any:
        sent.extend(envelopes)
        return await dispatch(envelopes)

    dispatcher.dispatch = keep
    await Relay(db, dispatcher, "w1", "redis").send()
    assert [(one.trace_id, one.span_id) for one in sent] == [tuple(traced.split("-")[1:3])]


async def test_a_row_that_commits_late_is_found(db: Database, redis: str, dispatchers: Make) -> None:
    relay = Relay(db, dispatchers(redis), "w1", "redis")
    async with db.transaction() as slow:
        await run_async(slow, submission(Submission("test"), [b"1"]))
        await add_job(db, 1)  # has a higher number, and is there first
        assert await relay.send() == 1
    assert await relay.send() == 1
    assert await waiting(db) == []


async def test_after_a_crash_between_sending_and_forgetting_it_is_sent_again(
    db: Database, redis: str, dispatchers: Make, ears: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = dispatchers(redis)
    ear, job_id = ears(dispatcher), await add_job(db, 1)

    async def crash(*_: object) -> None:
        raise SystemError

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "remove", crash)
        with pytest.raises(SystemError):
            await Relay(db, dispatcher, "dead", "redis").send()
    await ear.has_heard(job_id)
    assert await Relay(db, dispatcher, "alive", "redis").send() == 0  # perhaps it only takes long
    await shift_clock(db, "31 s")
    assert await Relay(db, dispatcher, "alive", "redis").send() == 1
    assert await waiting(db) == []

    async def heard_twice() -> bool:
        return ear.heard == [job_id, job_id]

    await eventually(heard_twice)


async def test_relays_share_the_work(db: Database, redis: str, dispatchers: Make, ears: Listen) -> None:
    dispatcher = dispatchers(redis)
    made = [await add_job(db, 1) for _ in range(40)]
    relays = [Relay(db, dispatchers(redis), f"w{n}", "redis") for n in range(4)]
    assert sum(await asyncio.gather(*(relay.send() for relay in relays))) == 40
    ear = ears(dispatcher)
    await ear.has_heard(*made)
    assert len(ear.heard) == 40


async def test_what_nobody_wants_any_more_is_not_sent(db: Database, redis: str, dispatchers: Make) -> None:
    dispatcher = dispatchers(redis)
    gone, cancelled, paused = [await add_job(db, 1) for _ in range(3)]
    await db.run(jobs.cancel, cancelled)
    await db.run(jobs.pause, paused)
    await rows(db, "DELETE FROM tidemill.job WHERE id = %s", gone)
    dispatcher.dispatch = _refuse_to_be_used_for_more_than_a_look
    assert await Relay(db, dispatcher, "w1", "redis").send() == 3
    assert await waiting(db) == []


async def _refuse_to_be_used_for_more_than_a_look(envelopes: list[Any]) -> list[Any]:
    assert envelopes == []
    return []


async def test_a_deleted_job_leaves_no_hint(db: Database) -> None:
    await db.run(outbox.register, "redis")
    await db.run(delete.delete, await add_job(db, 1))
    assert await waiting(db) == []


async def test_what_the_broker_refuses_again_and_again_is_set_aside_and_others_pass(
    db: Database, broker: str, dispatchers: Make, ears: Listen
) -> None:
    dispatcher = dispatchers(broker)
    bad, good = await add_job(db, 1, kind="k" * 5_000), await add_job(db, 1)
    relay = Relay(db, dispatcher, "w1", "redis", delay=0)
    for _ in range(MAX_ATTEMPTS):
        await relay.send()
    await ears(dispatcher).has_heard(good)
    assert await waiting(db) == []
    kept = await rows(db, "SELECT source, job_id, reason FROM tidemill.quarantine")
    assert [(source, job_id) for source, job_id, _ in kept] == [("refused", bad)]
    assert "larger than" in kept[0][2]


async def test_while_the_broker_is_away_the_outbox_gathers_and_then_it_drains(
    db: Database, own_redis: Broker, dispatchers: Make, ears: Listen
) -> None:
    dispatcher = dispatchers(own_redis.url)
    told, relay = Told(), Relay(db, dispatcher, "w1", "redis")
    leave = subscribe(lambda name, fields: told.append((name, fields)))
    own_redis.kill()
    made = [await add_job(db, 1) for _ in range(5)]
    pauses = [await relay.tick() for _ in range(6)]
    assert 0 < pauses[0] < 1 < pauses[-1] <= 10
    assert [taken for *_, taken in await waiting(db)] == [False] * 5
    own_redis.start()
    assert await relay.tick() > 0
    assert await waiting(db) == []
    await ears(dispatcher).has_heard(*made)
    leave()
    names = [name for name, _ in told if name.startswith("broker")]
    assert names == ["broker.lost", "broker.found"]  # once each, however often it was tried


async def test_a_broker_that_answers_and_takes_nothing_is_lost_once_and_hints_stay_one_a_job(
    db: Database, own_redis: Broker, dispatchers: Make, ears: Listen
) -> None:
    """A Redis that is full: it can be reached, and every hint is refused."""
    dispatcher, job_id = dispatchers(own_redis.url), await add_job(db, 3, batch_size=1)
    told, relay = Told(), Relay(db, dispatcher, "w1", "redis")
    await dispatcher.open()
    leave = subscribe(lambda name, fields: told.append((name, fields)))
    async with Redis.from_url(own_redis.url) as client:
        await client.config_set("maxmemory", "1")
        for _ in range(4):
            await relay.tick()
            assert dispatcher.trouble
            await db.run(jobs.pause, job_id)
            await db.run(jobs.resume, job_id)
            assert await waiting(db) == [(job_id, 3, False)]
        await client.config_set("maxmemory", "0")
    await relay.tick()
    leave()
    assert await waiting(db) == []
    assert [name for name, _ in told if name.startswith("broker")] == ["broker.lost", "broker.found"]


async def test_what_is_given_back_is_one_hint_a_job(db: Database) -> None:
    await db.run(outbox.register, "redis")
    job_id = await add_job(db, 3, batch_size=1)
    claimed = []
    for _ in range(3):
        claimed += await db.run(outbox.claim, "w1", limit=10, seconds=30)
        await db.run(jobs.pause, job_id)
        await db.run(jobs.resume, job_id)
    assert len(await waiting(db)) == 4
    await db.run(outbox.give_back, "w1", [hint.id for hint in claimed], "lost\0")
    assert await waiting(db) == [(job_id, 3, False)]
    kept = await rows(db, "SELECT created_at FROM tidemill.outbox")
    assert kept == [(min(hint.created_at for hint in claimed),)]  # and it has waited since then


async def test_a_block_is_of_so_many_messages_and_what_was_sent_is_not_sent_again(
    db: Database, redis: str, dispatchers: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.dispatch.relay.AT_ONCE", 40)
    dispatcher = dispatchers(redis)
    made = [await add_job(db, 100, batch_size=1) for _ in range(5)]  # 16 hints each
    dispatch, sent = dispatcher.dispatch, list[int]()

    async def break_down_later(envelopes: list[Any]) -> Any:
        if sum(sent) and envelopes:
            raise BrokerLost("too slow")
        sent.append(len(envelopes))
        return await dispatch(envelopes)

    with monkeypatch.context() as patch:
        patch.setattr(dispatcher, "dispatch", break_down_later)
        with pytest.raises(BrokerLost):
            await Relay(db, dispatcher, "w1", "redis").send()
    assert sum(sent) == 32
    assert sorted(await waiting(db)) == sorted((job_id, 16, False) for job_id in made[2:])
    assert await Relay(db, dispatcher, "w1", "redis").send() == 3


async def test_a_broker_goes_on_with_what_it_has_no_time_for_in_one_claim(
    db: Database, redis: str, dispatchers: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.dispatch.relay.CLAIM_S", 0.0)  # as if sending took as long as the claim holds
    await add_job(db, 1)
    await Relay(db, dispatchers(redis), "w1", "redis").send()
    assert [taken for *_, taken in await waiting(db)] == [False]


async def test_a_broker_that_goes_in_the_middle_of_a_block_loses_none_of_it(
    db: Database, own_redis: Broker, dispatchers: Make
) -> None:
    dispatcher = dispatchers(own_redis.url)
    await dispatcher.open()
    await add_job(db, 1)
    own_redis.kill()
    relay = Relay(db, dispatcher, "w1", "redis")
    with pytest.raises(BrokerLost):
        await relay.send()
    own_redis.start()
    assert await relay.send() == 1  # at once, not when the claim runs out


async def test_a_hint_that_was_lost_is_sent_again(db: Database) -> None:
    await db.run(outbox.register, "redis")
    lost, in_hand, sent = [await add_job(db, 2, batch_size=1) for _ in range(3)]
    await rows(db, "DELETE FROM tidemill.outbox WHERE job_id <> %s", sent)
    await take(db, in_hand)
    maintenance = Maintenance(db, "w1", resend_after_s=60)
    await maintenance.resend()
    assert [job_id for job_id, *_ in await waiting(db)] == [sent]
    await shift_clock(db, "61 s")
    await maintenance.resend()
    assert [job_id for job_id, *_ in await waiting(db)] == [sent, lost]


async def test_a_job_that_nobody_looks_at_gets_hints_further_and_further_apart(db: Database) -> None:
    await db.run(outbox.register, "redis")
    job_id = await add_job(db, 1)
    await rows(db, "UPDATE tidemill.batch SET not_before = since")
    hinted = []
    async with db.transaction(bounded=False) as conn:
        await conn.execute(b"SET LOCAL tidemill.shift = '1 hour'")
        await conn.execute(b"UPDATE tidemill.batch SET not_before = tidemill.now(), since = tidemill.now()")
        for minute in range(24 * 60):
            await conn.execute(b"DELETE FROM tidemill.outbox")
            await conn.execute(f"SET LOCAL tidemill.shift = '{60 + minute} minutes 5 seconds'".encode(), prepare=False)
            hinted += [minute for found in await outbox.resend(conn, 60.0, 60.0) if found == job_id]
    assert hinted == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


async def test_an_installation_that_gives_its_broker_up_writes_no_more_hints(db: Database) -> None:
    await db.run(outbox.register, "redis")
    await add_job(db, 1)
    await db.run(outbox.forget)
    assert len(await waiting(db)) == 1
    await shift_clock(db, "2 hours")
    await db.run(outbox.forget)
    await add_job(db, 1)
    assert await waiting(db) == []

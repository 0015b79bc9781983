"""Tests of the outbox relay: no hint is lost, and no hint delays others."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis

from dispatch.listeners import Ear
from store.scenes import rows_looked_at
from support import add_job, eventually, rows, shift_clock, take
from support.brokers import BrokerServer
from telemetry.recorded_events import Told
from tidemill.core.errors import BrokerUnavailable
from tidemill.dispatch import outbox
from tidemill.dispatch.outbox_relay import MAX_HINT_ATTEMPTS, OutboxRelay
from tidemill.engine.maintenance_loop import MaintenanceLoop
from tidemill.store import job_lifecycle, retention
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async
from tidemill.telemetry.events import subscribe
from tidemill_bench import database

Listen = Callable[..., Ear]
Make = Callable[..., Any]
WAITING = "SELECT job_id, hints, claimed_by IS NOT NULL FROM tidemill.outbox ORDER BY id"


async def waiting(db: Database) -> list[tuple[UUID, int, bool]]:
    return [(job_id, hints, taken) for job_id, hints, taken in await rows(db, WAITING)]


async def test_submission_without_broker_writes_no_outbox_hint(db: Database) -> None:
    await add_job(db, 10)
    assert await waiting(db) == []


async def test_outbox_hint_is_written_in_submission_transaction(db: Database) -> None:
    await db.run(outbox.register_broker_and_get_namespace, "redis")
    async with db.transaction() as conn:
        await run_steps_async(conn, build_submission_steps(Submission("test"), [b"1"]))
        await conn.rollback()
        await conn.execute(b"BEGIN")
    assert await waiting(db) == []
    job_id = await add_job(db, 10)
    assert await waiting(db) == [(job_id, 1, False)]


async def test_outbox_claim_uses_index_with_outdated_table_statistics(db: Database) -> None:
    """After a vacuum of an empty outbox, a join would be a nested loop: seconds for a thousand hints."""
    await db.run(database.add_hints, "test", 5_000)
    await rows(db, "UPDATE pg_class SET relpages = 4, reltuples = 0 WHERE oid = 'tidemill.outbox'::regclass")
    seen = await rows_looked_at(db, "outbox/claim", {"worker": "w", "limit": 100, "seconds": 30})
    assert seen["outbox"] == 200  # once to choose, once to claim


async def test_outbox_hint_count_depends_on_items_and_batches(db: Database) -> None:
    await db.run(outbox.register_broker_and_get_namespace, "redis")
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


async def test_outbox_holds_one_unclaimed_hint_per_job(db: Database) -> None:
    await db.run(outbox.register_broker_and_get_namespace, "redis")
    job_id = await add_job(db, 3, batch_size=1)
    for _ in range(3):
        await db.run(job_lifecycle.pause_job, job_id)
        await db.run(job_lifecycle.resume_job, job_id)
    assert await waiting(db) == [(job_id, 3, False)]
    await db.run_async_commit(outbox.claim_hints, "w1", limit=10, seconds=30)
    await db.run(job_lifecycle.pause_job, job_id)
    await db.run(job_lifecycle.resume_job, job_id)
    assert await waiting(db) == [(job_id, 3, True), (job_id, 3, False)]


async def test_relay_sends_every_hint_copy_and_empties_outbox(
    db: Database, broker: str, dispatchers: Make, ears: Listen
) -> None:
    dispatcher = dispatchers(broker)
    many, one = await add_job(db, 100, batch_size=1), await add_job(db, 1)
    relay = OutboxRelay(db, dispatcher, "w1", "redis")
    assert await relay.send_batch() == 2
    assert await waiting(db) == []
    ear = ears(dispatcher)

    async def all_heard() -> bool:
        return len(ear.heard) == 17

    await eventually(all_heard)
    assert (ear.heard.count(many), ear.heard.count(one)) == (16, 1)
    assert ear.refused == []


async def test_relay_envelope_carries_trace_ids_of_job(db: Database, redis: str, dispatchers: Make) -> None:
    dispatcher = dispatchers(redis)
    traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await add_job(db, 1, traceparent=traced)
    sent: list[Any] = []
    dispatch = dispatcher.dispatch

    async def keep(envelopes: list[Any]) -> Any:
        sent.extend(envelopes)
        return await dispatch(envelopes)

    dispatcher.dispatch = keep
    await OutboxRelay(db, dispatcher, "w1", "redis").send_batch()
    assert [(one.trace_id, one.span_id) for one in sent] == [tuple(traced.split("-")[1:3])]


async def test_relay_sends_hint_committed_after_newer_one(db: Database, redis: str, dispatchers: Make) -> None:
    relay = OutboxRelay(db, dispatchers(redis), "w1", "redis")
    async with db.transaction() as slow:
        await run_steps_async(slow, build_submission_steps(Submission("test"), [b"1"]))
        await add_job(db, 1)  # has a higher ID and commits first
        assert await relay.send_batch() == 1
    assert await relay.send_batch() == 1
    assert await waiting(db) == []


async def test_relay_resends_hint_after_crash_between_send_and_remove(
    db: Database, redis: str, dispatchers: Make, ears: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = dispatchers(redis)
    ear, job_id = ears(dispatcher), await add_job(db, 1)

    async def crash(*_: object) -> None:
        raise SystemError

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "remove_hints", crash)
        with pytest.raises(SystemError):
            await OutboxRelay(db, dispatcher, "dead", "redis").send_batch()
    await ear.has_heard(job_id)
    assert await OutboxRelay(db, dispatcher, "alive", "redis").send_batch() == 0  # the other relay may only be slow
    await shift_clock(db, "31 s")
    assert await OutboxRelay(db, dispatcher, "alive", "redis").send_batch() == 1
    assert await waiting(db) == []

    async def heard_twice() -> bool:
        return ear.heard == [job_id, job_id]

    await eventually(heard_twice)


async def test_concurrent_relays_send_each_hint_once(db: Database, redis: str, dispatchers: Make, ears: Listen) -> None:
    dispatcher = dispatchers(redis)
    made = [await add_job(db, 1) for _ in range(40)]
    relays = [OutboxRelay(db, dispatchers(redis), f"w{n}", "redis") for n in range(4)]
    assert sum(await asyncio.gather(*(relay.send_batch() for relay in relays))) == 40
    ear = ears(dispatcher)
    await ear.has_heard(*made)
    assert len(ear.heard) == 40


async def test_relay_drops_hints_of_deleted_cancelled_and_paused_jobs(
    db: Database, redis: str, dispatchers: Make
) -> None:
    dispatcher = dispatchers(redis)
    gone, cancelled, paused = [await add_job(db, 1) for _ in range(3)]
    await db.run(job_lifecycle.cancel_job, cancelled)
    await db.run(job_lifecycle.pause_job, paused)
    await rows(db, "DELETE FROM tidemill.job WHERE id = %s", gone)
    dispatcher.dispatch = _refuse_to_be_used_for_more_than_a_look
    assert await OutboxRelay(db, dispatcher, "w1", "redis").send_batch() == 3
    assert await waiting(db) == []


async def _refuse_to_be_used_for_more_than_a_look(envelopes: list[Any]) -> list[Any]:
    assert envelopes == []
    return []


async def test_delete_job_removes_its_outbox_hint(db: Database) -> None:
    await db.run(outbox.register_broker_and_get_namespace, "redis")
    await db.run(retention.delete_job, await add_job(db, 1))
    assert await waiting(db) == []


async def test_relay_quarantines_hint_rejected_too_often_and_sends_others(
    db: Database, broker: str, dispatchers: Make, ears: Listen
) -> None:
    dispatcher = dispatchers(broker)
    bad, good = await add_job(db, 1, kind="k" * 5_000), await add_job(db, 1)
    relay = OutboxRelay(db, dispatcher, "w1", "redis", retry_delay_s=0)
    for _ in range(MAX_HINT_ATTEMPTS):
        await relay.send_batch()
    await ears(dispatcher).has_heard(good)
    assert await waiting(db) == []
    kept = await rows(db, "SELECT source, job_id, reason FROM tidemill.quarantine")
    assert [(source, job_id) for source, job_id, _ in kept] == [("refused", bad)]
    assert "the maximum is" in kept[0][2]


async def test_outbox_keeps_hints_during_broker_outage_and_sends_them_after(
    db: Database, own_redis: BrokerServer, dispatchers: Make, ears: Listen
) -> None:
    dispatcher = dispatchers(own_redis.url)
    told, relay = Told(), OutboxRelay(db, dispatcher, "w1", "redis")
    leave = subscribe(told.append)
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
    assert names == ["broker.lost", "broker.found"]  # once each, however often it was sent


async def test_full_broker_is_reported_lost_once_and_outbox_stays_bounded(
    db: Database, own_redis: BrokerServer, dispatchers: Make, ears: Listen
) -> None:
    """A full Redis responds and rejects every hint."""
    dispatcher, job_id = dispatchers(own_redis.url), await add_job(db, 3, batch_size=1)
    told, relay = Told(), OutboxRelay(db, dispatcher, "w1", "redis")
    await dispatcher.ensure_send_connection()
    leave = subscribe(told.append)
    async with Redis.from_url(own_redis.url) as client:
        await client.config_set("maxmemory", "1")
        for _ in range(4):
            await relay.tick()
            assert dispatcher.current_error
            await db.run(job_lifecycle.pause_job, job_id)
            await db.run(job_lifecycle.resume_job, job_id)
            assert await waiting(db) == [(job_id, 3, False)]
        await client.config_set("maxmemory", "0")
    await relay.tick()
    leave()
    assert await waiting(db) == []
    assert [name for name, _ in told if name.startswith("broker")] == ["broker.lost", "broker.found"]


async def test_released_outbox_hints_are_merged_into_one_per_job(db: Database) -> None:
    await db.run(outbox.register_broker_and_get_namespace, "redis")
    job_id = await add_job(db, 3, batch_size=1)
    claimed = []
    for _ in range(3):
        claimed += await db.run_async_commit(outbox.claim_hints, "w1", limit=10, seconds=30)
        await db.run(job_lifecycle.pause_job, job_id)
        await db.run(job_lifecycle.resume_job, job_id)
    assert len(await waiting(db)) == 4
    await db.run(outbox.release_hint_claims, "w1", [hint.id for hint in claimed], "lost\0")
    assert await waiting(db) == [(job_id, 3, False)]
    kept = await rows(db, "SELECT created_at FROM tidemill.outbox")
    assert kept == [(min(hint.created_at for hint in claimed),)]  # its age counts from its first creation


async def test_relay_sends_in_bounded_blocks_and_does_not_resend_sent_ones(
    db: Database, redis: str, dispatchers: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.dispatch.outbox_relay.RELAY_BATCH_SIZE", 40)
    dispatcher = dispatchers(redis)
    made = [await add_job(db, 100, batch_size=1) for _ in range(5)]  # 16 hints each
    dispatch, sent = dispatcher.dispatch, list[int]()

    async def break_down_later(envelopes: list[Any]) -> Any:
        if sum(sent) and envelopes:
            raise BrokerUnavailable("too slow")
        sent.append(len(envelopes))
        return await dispatch(envelopes)

    with monkeypatch.context() as patch:
        patch.setattr(dispatcher, "dispatch", break_down_later)
        with pytest.raises(BrokerUnavailable):
            await OutboxRelay(db, dispatcher, "w1", "redis").send_batch()
    assert sum(sent) == 32
    assert sorted(await waiting(db)) == sorted((job_id, 16, False) for job_id in made[2:])
    assert await OutboxRelay(db, dispatcher, "w1", "redis").send_batch() == 3


async def test_relay_releases_hints_it_cannot_send_within_claim_time(
    db: Database, redis: str, dispatchers: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.dispatch.outbox_relay.OUTBOX_CLAIM_S", 0.0)  # as if sending took as long as the claim
    await add_job(db, 1)
    await OutboxRelay(db, dispatchers(redis), "w1", "redis").send_batch()
    assert [taken for *_, taken in await waiting(db)] == [False]


async def test_relay_resends_block_at_once_after_broker_restart(
    db: Database, own_redis: BrokerServer, dispatchers: Make
) -> None:
    dispatcher = dispatchers(own_redis.url)
    await dispatcher.ensure_send_connection()
    await add_job(db, 1)
    own_redis.kill()
    relay = OutboxRelay(db, dispatcher, "w1", "redis")
    with pytest.raises(BrokerUnavailable):
        await relay.send_batch()
    own_redis.start()
    assert await relay.send_batch() == 1  # immediately, not when the claim expires


async def test_maintenance_resends_lost_hint_of_waiting_job(db: Database) -> None:
    await db.run(outbox.register_broker_and_get_namespace, "redis")
    lost, in_hand, sent = [await add_job(db, 2, batch_size=1) for _ in range(3)]
    await rows(db, "DELETE FROM tidemill.outbox WHERE job_id <> %s", sent)
    await take(db, in_hand)
    maintenance = MaintenanceLoop(db, "w1", resend_after_s=60)
    await maintenance.resend_hints_for_stalled_jobs()
    assert [job_id for job_id, *_ in await waiting(db)] == [sent]
    await shift_clock(db, "61 s")
    await maintenance.resend_hints_for_stalled_jobs()
    assert [job_id for job_id, *_ in await waiting(db)] == [sent, lost]


async def test_resend_interval_doubles_for_job_that_is_not_claimed(db: Database) -> None:
    await db.run(outbox.register_broker_and_get_namespace, "redis")
    job_id = await add_job(db, 1)
    await rows(db, "UPDATE tidemill.batch SET not_before = since")
    hinted = []
    async with db.transaction(bounded=False) as conn:
        await conn.execute(b"SET LOCAL tidemill.shift = '1 hour'")
        await conn.execute(b"UPDATE tidemill.batch SET not_before = tidemill.now(), since = tidemill.now()")
        for minute in range(24 * 60):
            await conn.execute(b"DELETE FROM tidemill.outbox")
            await conn.execute(f"SET LOCAL tidemill.shift = '{60 + minute} minutes 5 seconds'".encode(), prepare=False)
            hinted += [minute for found in await outbox.add_hints_for_stalled_jobs(conn, 60.0, 60.0) if found == job_id]
    assert hinted == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


async def test_outbox_stops_when_broker_is_no_longer_registered(db: Database) -> None:
    await db.run(outbox.register_broker_and_get_namespace, "redis")
    await add_job(db, 1)
    await db.run(outbox.forget_broker_and_clear_outbox_if_unused)
    assert len(await waiting(db)) == 1
    await shift_clock(db, "2 hours")
    await db.run(outbox.forget_broker_and_clear_outbox_if_unused)
    await add_job(db, 1)
    assert await waiting(db) == []

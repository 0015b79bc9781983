"""Tests of brokers: each hint reaches one worker, malformed messages are quarantined, queues do not grow."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from taskiq import AckableMessage

from dispatch.listeners import Ear, WorkersEar, envelope, send_raw
from support import add_job, eventually, rows
from support.brokers import BrokerServer
from telemetry.recorded_events import Told
from tidemill.core.errors import BrokerUnavailable
from tidemill.dispatch import dispatchers, quarantine
from tidemill.dispatch.dispatchers import BrokerDispatcher
from tidemill.dispatch.envelope import decode_envelope, encode_envelope
from tidemill.dispatch.rabbitmq_connection import RabbitMQConnection
from tidemill.store.database import Database
from tidemill.telemetry.events import subscribe

Listen = Callable[..., Ear]
Make = Callable[..., Any]


async def test_broker_delivers_each_hint_to_one_worker(broker: str, dispatchers: Make, ears: Listen) -> None:
    one, two = dispatchers(broker, worker="w1"), dispatchers(broker, worker="w2")
    first, second = ears(one), ears(two)
    await first.has_begun()
    await second.has_begun()
    said = [envelope() for _ in range(40)]
    await one.dispatch(said)

    async def all_heard() -> bool:
        return len(first.heard) + len(second.heard) >= 40

    await eventually(all_heard)
    assert sorted([*first.heard, *second.heard]) == sorted(one.job_id for one in said)
    assert first.heard
    assert second.heard


async def test_redis_hints_go_to_idle_worker_when_another_is_busy(redis: str, dispatchers: Make, ears: Listen) -> None:
    busy = ears(dispatchers(redis, worker="busy"), Ear(busy=True))
    await busy.has_begun()
    idle = ears(dispatchers(redis, worker="idle"))
    said = [envelope() for _ in range(10)]
    await dispatchers(redis).dispatch(said)
    await idle.has_heard(*(one.job_id for one in said))
    assert busy.heard == []


async def test_broker_keeps_hints_sent_before_any_worker_listens(broker: str, dispatchers: Make, ears: Listen) -> None:
    said = envelope()
    await dispatchers(broker).dispatch([said])
    await ears(dispatchers(broker)).has_heard(said.job_id)


async def test_broker_delivers_only_hints_of_kinds_worker_handles(broker: str, dispatchers: Make, ears: Listen) -> None:
    ear = ears(dispatchers(broker, kinds=("mine", "ours"), worker="w1"))
    await ear.has_begun()
    other, mine, ours = envelope("theirs"), envelope("mine"), envelope("ours")
    await dispatchers(broker).dispatch([other, mine, ours])
    await ear.has_heard(mine.job_id, ours.job_id)
    assert other.job_id not in ear.heard
    await ears(dispatchers(broker, kinds=("theirs",), worker="w2")).has_heard(other.job_id)


async def test_broker_separates_hints_of_installations_by_namespace(
    broker: str, dispatchers: Make, ears: Listen
) -> None:
    ear = ears(dispatchers(broker, space="one"))
    await ear.has_begun()
    theirs, ours = envelope(), envelope()
    await dispatchers(broker, space="two").dispatch([theirs])
    await dispatchers(broker, space="one").dispatch([ours])
    await ear.has_heard(ours.job_id)
    assert theirs.job_id not in ear.heard


async def test_invalid_message_is_rejected_with_reasons_and_next_is_received(
    broker: str, dispatchers: Make, ears: Listen
) -> None:
    dispatcher, good = dispatchers(broker), envelope()
    ear = ears(dispatcher)
    future = encode_envelope(envelope()).replace(b'"1.0"', b'"2.0"')
    wrong = [
        b"",
        b"\x00\xff",
        b"[]",
        b'{"header": 1, "more": 2}',
        future,
        encode_envelope(envelope("another")),
        b"x" * 10_000,
    ]
    await send_raw(dispatcher, "test", *wrong, encode_envelope(good))
    await ear.has_heard(good.job_id)
    assert [message for message, _ in ear.refused] == wrong
    reasons = [reason for _, reason in ear.refused]
    assert reasons[3] == "more: unknown field; header: must be an object; body: is required; tracing: is required"
    assert "must be 1.0, not 2.0" in reasons[4]
    assert 'this worker does not run kind "another"' in reasons[5]
    assert "10000 bytes" in reasons[6]
    assert ear.heard == [good.job_id]


async def test_message_with_unstorable_characters_is_quarantined_escaped(
    db: Database, broker: str, dispatchers: Make, ears: Listen
) -> None:
    """An unpaired surrogate or a NUL in a message must not break the connection of every worker forever."""
    dispatcher, job_id = dispatchers(broker), await add_job(db, 1)
    ear = ears(dispatcher, WorkersEar(db))
    version = encode_envelope(envelope()).replace(b'"1.0"', b'"\\u0000\\udfff"')
    await send_raw(dispatcher, "test", b'{"\\ud800": 1}', version, encode_envelope(envelope(job_id=job_id)))
    await ear.has_heard(job_id)
    kept = await rows(db, "SELECT reason FROM tidemill.quarantine ORDER BY id")
    assert kept[0][0].startswith("\\ud800: unknown field")
    assert "header.version: must be 1.0, not \\x00\\udfff" in kept[1][0]
    assert dispatcher.current_error is None


async def test_message_that_cannot_be_quarantined_is_reported_and_dropped(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise SystemError("the disk is full")

    told = Told()
    leave = subscribe(told.append)
    monkeypatch.setattr(quarantine, "quarantine_message", full)
    await WorkersEar(db).quarantine_invalid_message(b"rubbish", "The message is not valid JSON")
    leave()
    assert [name for name, _ in told] == ["loop.failed", "hint.quarantined"]


async def test_quarantine_is_trimmed_to_maximum_messages(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.dispatch.dispatchers.QUARANTINE_TRIM_EVERY_MESSAGES", 5)
    monkeypatch.setattr(quarantine, "QUARANTINE_MAX_MESSAGES", 3)
    ear = WorkersEar(db)
    for n in range(11):
        await ear.quarantine_invalid_message(b"%d" % n, "The message is not a JSON object")
    assert await rows(db, "SELECT message FROM tidemill.quarantine ORDER BY id") == [("7",), ("8",), ("9",), ("10",)]


async def test_dispatch_without_broker_raises_broker_lost_until_it_restarts(
    own_redis: BrokerServer, dispatchers: Make, ears: Listen
) -> None:
    dispatcher = dispatchers(own_redis.url)
    ear = ears(dispatcher)
    await ear.has_begun()
    own_redis.kill()
    with pytest.raises(BrokerUnavailable):
        await dispatcher.dispatch([envelope()])
    assert dispatcher.current_error

    own_redis.start()
    await ear.has_begun(2)
    said = envelope()
    assert await dispatcher.dispatch([said]) == [None]
    await ear.has_heard(said.job_id)
    assert dispatcher.current_error is None


async def test_redis_denying_reads_is_retried_with_backoff_and_reported_once(
    own_redis: BrokerServer, dispatchers: Make, ears: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, told = list[int](), Told()

    def pause_after(failures: int) -> float:
        tries.append(failures)
        return 0.01

    async def has_tried() -> bool:
        return len(tries) > 5

    monkeypatch.setattr("tidemill.dispatch.dispatchers.compute_reconnect_delay", pause_after)
    leave = subscribe(told.append)
    async with Redis.from_url(own_redis.url) as client:
        await client.acl_setuser("default", enabled=True, commands=["-xreadgroup"])
        dispatcher, sent = dispatchers(own_redis.url), envelope()
        ear = ears(dispatcher)
        await eventually(has_tried)
        assert tries[:5] == [0, 1, 2, 3, 4]
        assert ear.began == 0  # no worker was woken for it
        await dispatcher.dispatch([sent])
        await client.acl_setuser("default", enabled=True, commands=["+xreadgroup"])
        await ear.has_heard(sent.job_id)
    leave()
    assert [name for name, _ in told if name.startswith("broker")] == ["broker.lost", "broker.found"]


async def test_redis_stream_is_empty_after_hints_are_received(redis: str, dispatchers: Make, ears: Listen) -> None:
    dispatcher = dispatchers(redis)
    ear, said = ears(dispatcher), [envelope() for _ in range(100)]
    await dispatcher.dispatch(said)
    await ear.has_heard(*(one.job_id for one in said))
    stream = dispatcher._make_connection().queue_name_for("test")
    async with Redis.from_url(redis) as client:

        async def is_empty() -> bool:
            return await client.xlen(stream) == 0 and (await client.xpending(stream, "tidemill"))["pending"] == 0

        await eventually(is_empty)


async def test_redis_stream_length_is_bounded(redis: str, dispatchers: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.dispatch.redis_connection.MAX_QUEUED_HINTS", 500)
    dispatcher = dispatchers(redis)
    await dispatcher.dispatch([envelope() for _ in range(3_000)])
    async with Redis.from_url(redis) as client:
        assert await client.xlen(dispatcher._make_connection().queue_name_for("test")) < 1_000


async def test_redis_hint_of_dead_worker_is_delivered_to_another(
    redis: str, dispatchers: Make, ears: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.dispatch.redis_connection.REDIS_ABANDONED_HINT_MS", 50)
    said = envelope()
    dead = dispatchers(redis, worker="dead")
    await dead.dispatch([said])
    line = dead._make_connection()
    await line.startup()
    heard = line.listen()
    assert await anext(heard) is None  # it may
    taken = await anext(heard)
    await line.shutdown()
    assert decode_envelope(taken.data).job_id == said.job_id
    await ears(dispatchers(redis, worker="alive")).has_heard(said.job_id)


async def test_rabbitmq_reports_missing_queue_and_recreates_it_on_next_dispatch(
    rabbitmq: str, dispatchers: Make
) -> None:
    dispatcher = dispatchers(rabbitmq)
    assert await dispatcher.dispatch([envelope()]) == [None]
    line = dispatcher._send_connection
    assert isinstance(line, RabbitMQConnection)
    assert line.write_channel is not None
    await line.write_channel.queue_delete(line.queue_name_for("test"))
    [answer] = await dispatcher.dispatch([envelope()])
    assert "refused" in (answer or "")
    assert await dispatcher.dispatch([envelope()]) == [None]


async def test_dispatch_rejects_only_hints_that_are_too_large(broker: str, dispatchers: Make) -> None:
    dispatcher = dispatchers(broker)
    answers = await dispatcher.dispatch([envelope(), envelope("k" * 5_000), envelope()])
    assert [answer is None for answer in answers] == [True, False, True]


async def test_dispatcher_reconnects_when_broker_never_answers_consume(
    rabbitmq: str, ears: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ 3.10 does so after a kill: heartbeats arrive, but the quorum queue has no leader."""
    monkeypatch.setattr(dispatchers, "BROKER_CONNECT_TIMEOUT_S", 1.0)
    opened: list[RabbitMQConnection] = []

    class UnansweredOnce(RabbitMQConnection):
        async def listen(self) -> AsyncGenerator[AckableMessage | None, None]:  # type: ignore[override]
            if len(opened) == 1:
                await asyncio.Event().wait()
            async for message in super().listen():
                yield message

    def connect() -> RabbitMQConnection:
        opened.append(UnansweredOnce(rabbitmq, uuid4().hex, ["test"]))
        return opened[-1]

    await ears(BrokerDispatcher(connect, ["test"])).has_begun()
    assert len(opened) == 2

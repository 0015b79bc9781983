"""What brokers do beyond the contract: each hint for one worker, nothing malformed, nothing that grows."""

from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from brokers import Broker
from dispatch.scenes import Ear, WorkersEar, envelope, send_raw
from support import add_job, eventually, rows
from telemetry.hearing import Told
from tidemill.dispatch import taskiq
from tidemill.dispatch.rabbitmq import RabbitLine
from tidemill.domain.envelope import decode, encode
from tidemill.domain.errors import BrokerLost
from tidemill.store import quarantine
from tidemill.store.database import Database
from tidemill.telemetry.events import subscribe

Listen = Callable[..., Ear]
Make = Callable[..., Any]


async def test_each_hint_reaches_one_worker(broker: str, dispatchers: Make, ears: Listen) -> None:
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


async def test_a_busy_worker_leaves_hints_to_others(redis: str, dispatchers: Make, ears: Listen) -> None:
    busy = ears(dispatchers(redis, worker="busy"), Ear(busy=True))
    await busy.has_begun()
    idle = ears(dispatchers(redis, worker="idle"))
    said = [envelope() for _ in range(10)]
    await dispatchers(redis).dispatch(said)
    await idle.has_heard(*(one.job_id for one in said))
    assert busy.heard == []


async def test_what_was_sent_before_anybody_listened_is_there(broker: str, dispatchers: Make, ears: Listen) -> None:
    said = envelope()
    await dispatchers(broker).dispatch([said])
    await ears(dispatchers(broker)).has_heard(said.job_id)


async def test_a_worker_hears_only_of_kinds_it_can_run(broker: str, dispatchers: Make, ears: Listen) -> None:
    ear = ears(dispatchers(broker, kinds=("mine", "ours"), worker="w1"))
    await ear.has_begun()
    other, mine, ours = envelope("theirs"), envelope("mine"), envelope("ours")
    await dispatchers(broker).dispatch([other, mine, ours])
    await ear.has_heard(mine.job_id, ours.job_id)
    assert other.job_id not in ear.heard
    await ears(dispatchers(broker, kinds=("theirs",), worker="w2")).has_heard(other.job_id)


async def test_installations_may_share_a_broker(broker: str, dispatchers: Make, ears: Listen) -> None:
    ear = ears(dispatchers(broker, space="one"))
    await ear.has_begun()
    theirs, ours = envelope(), envelope()
    await dispatchers(broker, space="two").dispatch([theirs])
    await dispatchers(broker, space="one").dispatch([ours])
    await ear.has_heard(ours.job_id)
    assert theirs.job_id not in ear.heard


async def test_what_is_no_hint_is_refused_with_every_reason_and_the_next_is_heard(
    broker: str, dispatchers: Make, ears: Listen
) -> None:
    dispatcher, good = dispatchers(broker), envelope()
    ear = ears(dispatcher)
    future = encode(envelope()).replace(b'"1.0"', b'"2.0"')
    wrong = [b"", b"\x00\xff", b"[]", b'{"header": 1, "more": 2}', future, encode(envelope("another")), b"x" * 10_000]
    await send_raw(dispatcher, "test", *wrong, encode(good))
    await ear.has_heard(good.job_id)
    assert [message for message, _ in ear.refused] == wrong
    reasons = [reason for _, reason in ear.refused]
    assert reasons[3] == "more is not part of a message; header is not an object; body is missing; tracing is missing"
    assert "2.0, not 1.0" in reasons[4]
    assert "'another', which nobody here runs" in reasons[5]
    assert "10000 bytes" in reasons[6]
    assert ear.heard == [good.job_id]


async def test_a_message_that_cannot_be_written_down_is_kept_in_other_characters_and_the_next_is_heard(
    db: Database, broker: str, dispatchers: Make, ears: Listen
) -> None:
    """A key with half a pair, a NUL in the version: each would break the line of every worker, for ever."""
    dispatcher, job_id = dispatchers(broker), await add_job(db, 1)
    ear = ears(dispatcher, WorkersEar(db))
    version = encode(envelope()).replace(b'"1.0"', b'"\\u0000\\udfff"')
    await send_raw(dispatcher, "test", b'{"\\ud800": 1}', version, encode(envelope(job_id=job_id)))
    await ear.has_heard(job_id)
    kept = await rows(db, "SELECT reason FROM tidemill.quarantine ORDER BY id")
    assert kept[0][0].startswith("\\ud800 is not part of a message")
    assert "header.version is \\x00\\udfff, not 1.0" in kept[1][0]
    assert dispatcher.trouble is None


async def test_a_message_that_cannot_be_kept_is_told_of_and_gone(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object) -> None:
        raise SystemError("the disk is full")

    told = Told()
    leave = subscribe(lambda name, fields: told.append((name, fields)))
    monkeypatch.setattr(quarantine, "add", full)
    await WorkersEar(db).refuse(b"rubbish", "it is not JSON")
    leave()
    assert [name for name, _ in told] == ["loop.failed", "hint.quarantined"]


async def test_a_stranger_who_sends_rubbish_all_day_does_not_fill_the_disk(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.dispatch.hints.THIN_EVERY", 5)
    monkeypatch.setattr(quarantine, "KEEP", 3)
    ear = WorkersEar(db)
    for n in range(11):
        await ear.refuse(b"%d" % n, "it is not a JSON object")
    assert await rows(db, "SELECT message FROM tidemill.quarantine ORDER BY id") == [("7",), ("8",), ("9",), ("10",)]


async def test_without_a_broker_nothing_is_sent_and_somebody_says_so(
    own_redis: Broker, dispatchers: Make, ears: Listen
) -> None:
    dispatcher = dispatchers(own_redis.url)
    ear = ears(dispatcher)
    await ear.has_begun()
    own_redis.kill()
    with pytest.raises(BrokerLost):
        await dispatcher.dispatch([envelope()])
    assert dispatcher.trouble

    own_redis.start()
    await ear.has_begun(2)
    said = envelope()
    assert await dispatcher.dispatch([said]) == [None]
    await ear.has_heard(said.job_id)
    assert dispatcher.trouble is None


async def test_a_redis_that_lets_nobody_read_is_tried_less_and_less_often_and_told_of_once(
    own_redis: Broker, dispatchers: Make, ears: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, told = list[int](), Told()

    def pause_after(failures: int) -> float:
        tries.append(failures)
        return 0.01

    async def has_tried() -> bool:
        return len(tries) > 5

    monkeypatch.setattr(taskiq, "pause_after", pause_after)
    leave = subscribe(lambda name, fields: told.append((name, fields)))
    async with Redis.from_url(own_redis.url) as client:
        await client.acl_setuser("default", enabled=True, commands=["-xreadgroup"])
        dispatcher, sent = dispatchers(own_redis.url), envelope()
        ear = ears(dispatcher)
        await eventually(has_tried)
        assert tries[:5] == [0, 1, 2, 3, 4]
        assert ear.began == 0  # nobody was woken for it
        await dispatcher.dispatch([sent])
        await client.acl_setuser("default", enabled=True, commands=["+xreadgroup"])
        await ear.has_heard(sent.job_id)
    leave()
    assert [name for name, _ in told if name.startswith("broker")] == ["broker.lost", "broker.found"]


async def test_redis_keeps_nothing_that_was_heard(redis: str, dispatchers: Make, ears: Listen) -> None:
    dispatcher = dispatchers(redis)
    ear, said = ears(dispatcher), [envelope() for _ in range(100)]
    await dispatcher.dispatch(said)
    await ear.has_heard(*(one.job_id for one in said))
    stream = dispatcher._make_line().queue("test")
    async with Redis.from_url(redis) as client:

        async def is_empty() -> bool:
            return await client.xlen(stream) == 0 and (await client.xpending(stream, "tidemill"))["pending"] == 0

        await eventually(is_empty)


async def test_redis_has_room_for_so_many_and_no_more(
    redis: str, dispatchers: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.dispatch.redis.MAX_LENGTH", 500)
    dispatcher = dispatchers(redis)
    await dispatcher.dispatch([envelope() for _ in range(3_000)])
    async with Redis.from_url(redis) as client:
        assert await client.xlen(dispatcher._make_line().queue("test")) < 1_000


async def test_what_a_dead_worker_took_is_somebody_elses(
    redis: str, dispatchers: Make, ears: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.dispatch.redis.ABANDONED_MS", 50)
    said = envelope()
    dead = dispatchers(redis, worker="dead")
    await dead.dispatch([said])
    line = dead._make_line()
    await line.startup()
    heard = line.listen()
    assert await anext(heard) is None  # it may
    taken = await anext(heard)
    await line.shutdown()
    assert decode(taken.data).job_id == said.job_id
    await ears(dispatchers(redis, worker="alive")).has_heard(said.job_id)


async def test_rabbitmq_says_when_there_is_no_queue_and_the_next_try_makes_it(rabbitmq: str, dispatchers: Make) -> None:
    dispatcher = dispatchers(rabbitmq)
    assert await dispatcher.dispatch([envelope()]) == [None]
    line = dispatcher._sending
    assert isinstance(line, RabbitLine)
    assert line.write_channel is not None
    await line.write_channel.queue_delete(line.queue("test"))
    [answer] = await dispatcher.dispatch([envelope()])
    assert "refused" in (answer or "")
    assert await dispatcher.dispatch([envelope()]) == [None]


async def test_a_message_that_is_too_large_is_refused_and_its_neighbours_are_not(
    broker: str, dispatchers: Make
) -> None:
    dispatcher = dispatchers(broker)
    answers = await dispatcher.dispatch([envelope(), envelope("k" * 5_000), envelope()])
    assert [answer is None for answer in answers] == [True, False, True]

"""Tests of changes while processes run: declarations, blocks, lost responses."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from support import eventually, rows
from tidemill.limits import limiter_records as store
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_permit import LimiterRegistry
from tidemill.limits.limiter_queue import MAX_RETRY_SPREAD_S, LimiterQueue, RetrySchedule
from tidemill.limits.limiter_records import PermitRequest
from tidemill.limits.use_cases import unblock_limiter
from tidemill.store.database import Database

SHOP, PLACES = Limiter("shop", 100.0, 10), Limiter("shop", 100.0, 10, 4)
ASK = PermitRequest("shop", "", "w1", 1, 0, 1, 0, 0, 0.0, 0.1, 30.0)
HELD = "SELECT coalesce(sum(held), 0) FROM tidemill.limiter_hold"
Counted = Callable[[], int]


def line_of(db: Database, limiter: Limiter, child: int = 1) -> LimiterQueue:
    return LimiterRegistry(db, {limiter.name: limiter}, worker="w", child=child, lease_seconds=30).get_or_create_queue(
        limiter.name
    )


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Return how often the limiter's row was requested."""
    real, made = store.take_permits, []

    async def counted(conn: object, asking: PermitRequest) -> object:
        made.append(asking)
        return await real(conn, asking)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "take_permits", counted)
    return lambda: len(made)


async def test_slot_request_repeated_after_lost_response_takes_one_slot(db: Database) -> None:
    """The first response is lost: the statement runs again with the same parameters."""
    await db.run(store.declare_limiters, [replace(PLACES, concurrency=1)])
    for _ in range(2):
        _, answer = await db.read(store.take_permits, ASK)
        assert answer is not None
        assert answer.places == 1
    for _ in range(2):
        await db.run_async_commit(store.set_held_slots, "shop", "", "w1", 1, 0)
    assert await rows(db, HELD) == [(0,)]
    _, other = await db.read(store.take_permits, replace(ASK, child=2))
    assert other is not None
    assert other.places == 1


async def test_process_holding_slots_is_granted_remaining_slots(db: Database) -> None:
    await db.run(store.declare_limiters, [PLACES])
    await db.read(store.take_permits, replace(ASK, places=2))
    _, answer = await db.read(store.take_permits, replace(ASK, held=2, places=5))
    assert answer is not None
    assert answer.places == 2
    await db.run_async_commit(store.set_held_slots, "shop", "", "w1", 1, 3)
    assert await rows(db, HELD) == [(3,)]


async def test_unused_permits_are_returned_at_most_once_on_connection_loss(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that gets no confirmation does not return permits a second time."""
    await db.run(store.declare_limiters, [SHOP])
    real = store.return_permits
    tries: list[tuple[str, str, list[float], float]] = []

    async def lost(conn: object, *words: Any) -> None:
        tries.append(words)
        await real(conn, *words)  # type: ignore[arg-type]
        raise ConnectionError

    monkeypatch.setattr(store, "return_permits", lost)
    line = line_of(db, SHOP)
    line.begin_prefetching()
    for _ in range(20):
        assert await line.acquire_or_get_wait_s(None) is None
    line.end_prefetching()
    await line._client.wait_for_background_tasks()
    given_back = [start for _, _, starts, _ in tries for start in starts]
    assert len(given_back) == len(set(given_back))


@pytest.mark.parametrize("now", [PLACES, SHOP], ids=["added", "taken away"])
async def test_slot_counting_follows_database_row_not_local_declaration(
    db: Database, trips: Counted, now: Limiter
) -> None:
    """A rolling update: workers with the old declaration continue and do not poll without a pause."""
    await db.run(store.declare_limiters, [now])
    line = line_of(db, SHOP if now is PLACES else PLACES)
    async with asyncio.timeout(15):
        for _ in range(3):
            assert await line.acquire_or_get_wait_s(None) is None
    assert await rows(db, HELD) == [(3 if now is PLACES else 0,)]
    for _ in range(3):
        line.release_slot(0.01)
    await line._client.wait_for_background_tasks()
    assert await rows(db, HELD) == [(0,)]
    assert trips() <= 6


async def test_running_calls_are_counted_when_limiter_gains_slots(db: Database, trips: Counted) -> None:
    await db.run(store.declare_limiters, [SHOP])
    line = line_of(db, SHOP)
    for _ in range(4):
        assert await line.acquire_or_get_wait_s(None) is None
    await db.run(store.declare_limiters, [PLACES])
    fifth = asyncio.create_task(line.acquire_or_get_wait_s(None))

    async def all_are_counted() -> bool:
        return await rows(db, HELD) == [(4,)]

    await eventually(all_are_counted)
    begun, asked = time.monotonic(), trips()
    await asyncio.wait([fifth], timeout=0.3)
    assert not fifth.done()
    assert trips() - asked <= 2 + (time.monotonic() - begun) / 0.02
    line.release_slot(None)
    async with asyncio.timeout(15):
        assert await fifth is None
    await line._client.wait_for_background_tasks()


async def test_unblocked_limiter_admits_again_in_processes_that_were_blocked(
    db: Database, trips: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.limits.limiter_queue.MAX_BLOCK_WAIT_S", 0.2)
    await db.run(store.declare_limiters, [SHOP])
    line = line_of(db, SHOP)
    assert await line.acquire_or_get_wait_s(None) is None
    line.block_and_report_throttled(3600, time.monotonic())
    await line._client.wait_for_background_tasks()
    assert line.remaining_block_s() > 3000
    begun, asked = time.monotonic(), trips()
    for _ in range(20):
        assert await line.acquire_or_get_wait_s(None) is not None
    assert trips() - asked <= 1 + (time.monotonic() - begun) / 0.2  # no busy polling
    await unblock_limiter(db, "shop")

    async def may_begin() -> bool:
        return await line.acquire_or_get_wait_s(None) is None

    await eventually(may_begin)
    await line._client.wait_for_background_tasks()


async def test_unreported_throttling_keeps_limiter_blocked_after_response(db: Database) -> None:
    await db.run(store.declare_limiters, [SHOP])
    line = line_of(db, SHOP)
    for _ in range(5):
        entering = asyncio.create_task(line.acquire_or_get_wait_s(None))
        await asyncio.sleep(0)
        line.block_and_report_throttled(5, time.monotonic())
        await entering
        assert line.remaining_block_s() > 4
    await line._client.wait_for_background_tasks()


def test_postponed_items_retry_at_limiter_pace_up_to_maximum_delay() -> None:
    turns = RetrySchedule()
    waits = [turns.reserve_retry(100.0, 5.0, 2.0) for _ in range(2_000)]
    assert waits[:4] == [5.0, 5.5, 6.0, 6.5]
    assert waits[-1] == 5 + MAX_RETRY_SPREAD_S
    assert turns.reserve_retry(10_000.0, 5.0, 2.0) == 5.0


async def test_rate_limited_items_are_postponed_at_limiter_pace(db: Database) -> None:
    slow = Limiter("sites", 0.1, 1)
    await db.run(store.declare_limiters, [slow])
    line = line_of(db, slow)
    assert await line.acquire_or_get_wait_s(None) is None
    waits = [await line.acquire_or_get_wait_s(None, max_wait_s=0.5, counts_queue=True) or 0.0 for _ in range(4)]
    assert all(8 < later - sooner < 10.5 for sooner, later in pairwise(waits)), waits
    await line._client.wait_for_background_tasks()


async def test_members_beyond_maximum_share_row_with_separate_slots(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_LIMITER_MEMBERS", 0)
    await db.run(store.declare_limiters, [PLACES])
    limits = LimiterRegistry(db, {"shop": PLACES}, worker="w", child=1, lease_seconds=30)
    one, two = limits.get_or_create_queue("shop", "one.example"), limits.get_or_create_queue("shop", "two.example")
    assert [
        await one.acquire_or_get_wait_s(None),
        await one.acquire_or_get_wait_s(None),
        await two.acquire_or_get_wait_s(None),
    ] == [None] * 3
    assert await rows(db, HELD) == [(3,)]
    two.release_slot(0.01)
    await two._client.wait_for_background_tasks()
    assert await rows(db, HELD) == [(2,)]
    assert {key for (key,) in await rows(db, "SELECT key FROM tidemill.limiter_hold")} == {store.SHARED_MEMBER_KEY}

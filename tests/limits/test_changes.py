"""What changes while processes run: declarations, blocks, answers that are lost."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from support import eventually, rows
from tidemill.domain.limits import Limiter
from tidemill.engine.limits import Line, ProcessLimits
from tidemill.engine.limits.turns import LONGEST_S, Turns
from tidemill.operations.limiters import unblock_limiter
from tidemill.store import limiters as store
from tidemill.store.database import Database
from tidemill.store.limiters import Asking

SHOP, PLACES = Limiter("shop", 100.0, 10), Limiter("shop", 100.0, 10, 4)
ASK = Asking("shop", "", "w1", 1, 0, 1, 0, 0, 0.0, 0.1, 30.0)
HELD = "SELECT coalesce(sum(held), 0) FROM tidemill.limiter_hold"
Counted = Callable[[], int]


def line_of(db: Database, limiter: Limiter, child: int = 1) -> Line:
    return ProcessLimits(db, {limiter.name: limiter}, worker="w", child=child, seconds=30).line(limiter.name)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """How often the row was asked."""
    real, made = store.take, []

    async def counted(conn: object, asking: Asking) -> object:
        made.append(asking)
        return await real(conn, asking)  # type: ignore[arg-type]

    counted.one_statement = True  # type: ignore[attr-defined]
    monkeypatch.setattr(store, "take", counted)
    return lambda: len(made)


async def test_a_place_is_not_lost_with_an_answer(db: Database) -> None:
    """The first time its answer was lost: the statement runs again, with the same words."""
    await db.run(store.declare, [replace(PLACES, concurrency=1)])
    for _ in range(2):
        _, answer = await db.run(store.take, ASK)
        assert answer is not None
        assert answer.places == 1
    for _ in range(2):
        await db.run(store.leave, "shop", "", "w1", 1, 0)
    assert await rows(db, HELD) == [(0,)]
    _, other = await db.run(store.take, replace(ASK, child=2))
    assert other is not None
    assert other.places == 1


async def test_a_process_that_has_places_gets_more_beside_them(db: Database) -> None:
    await db.run(store.declare, [PLACES])
    await db.run(store.take, replace(ASK, places=2))
    _, answer = await db.run(store.take, replace(ASK, held=2, places=5))
    assert answer is not None
    assert answer.places == 2
    await db.run(store.leave, "shop", "", "w1", 1, 3)
    assert await rows(db, HELD) == [(3,)]


async def test_permits_are_given_back_once_or_not_at_all(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not hear that they are back does not give them back again."""
    await db.run(store.declare, [SHOP])
    real = store.give_back
    tries: list[tuple[str, str, list[float], float]] = []

    async def lost(conn: object, *words: Any) -> None:
        tries.append(words)
        await real(conn, *words)  # type: ignore[arg-type]
        raise ConnectionError

    monkeypatch.setattr(store, "give_back", lost)
    line = line_of(db, SHOP)
    line.join()
    for _ in range(20):
        assert await line.enter(None) is None
    line.part()
    await line._trips.close()
    given_back = [start for _, _, starts, _ in tries for start in starts]
    assert len(given_back) == len(set(given_back))


@pytest.mark.parametrize("now", [PLACES, SHOP], ids=["added", "taken away"])
async def test_places_are_counted_as_the_row_says_whatever_the_process_was_told(
    db: Database, trips: Counted, now: Limiter
) -> None:
    """Of an update that reaches one worker after another: those of yesterday go on, and do not look without a pause."""
    await db.run(store.declare, [now])
    line = line_of(db, SHOP if now is PLACES else PLACES)
    async with asyncio.timeout(15):
        for _ in range(3):
            assert await line.enter(None) is None
    assert await rows(db, HELD) == [(3 if now is PLACES else 0,)]
    for _ in range(3):
        line.leave(0.01)
    await line._trips.close()
    assert await rows(db, HELD) == [(0,)]
    assert trips() <= 6


async def test_calls_that_began_before_places_were_counted_are_counted_too(db: Database, trips: Counted) -> None:
    await db.run(store.declare, [SHOP])
    line = line_of(db, SHOP)
    for _ in range(4):
        assert await line.enter(None) is None
    await db.run(store.declare, [PLACES])
    fifth = asyncio.create_task(line.enter(None))

    async def all_are_counted() -> bool:
        return await rows(db, HELD) == [(4,)]

    await eventually(all_are_counted)
    begun, asked = time.monotonic(), trips()
    await asyncio.wait([fifth], timeout=0.3)
    assert not fifth.done()
    assert trips() - asked <= 2 + (time.monotonic() - begun) / 0.02
    line.leave(None)
    async with asyncio.timeout(15):
        assert await fifth is None
    await line._trips.close()


async def test_a_block_that_is_lifted_is_lifted_in_the_processes_that_knew_of_it(
    db: Database, trips: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.engine.limits.line.PATIENCE_S", 0.2)
    await db.run(store.declare, [SHOP])
    line = line_of(db, SHOP)
    assert await line.enter(None) is None
    line.refused(3600, time.monotonic())
    await line._trips.close()
    assert line.blocked_s() > 3000
    begun, asked = time.monotonic(), trips()
    for _ in range(20):
        assert await line.enter(None) is not None
    assert trips() - asked <= 1 + (time.monotonic() - begun) / 0.2  # nobody looks again and again
    await unblock_limiter(db, "shop")

    async def may_begin() -> bool:
        return await line.enter(None) is None

    await eventually(may_begin)
    await line._trips.close()


async def test_a_refusal_that_the_row_has_not_heard_of_is_not_lifted_by_its_answer(db: Database) -> None:
    await db.run(store.declare, [SHOP])
    line = line_of(db, SHOP)
    for _ in range(5):
        entering = asyncio.create_task(line.enter(None))
        await asyncio.sleep(0)
        line.refused(5, time.monotonic())
        await entering
        assert line.blocked_s() > 4
    await line._trips.close()


def test_those_who_are_sent_away_come_one_after_another_but_not_next_year() -> None:
    turns = Turns()
    waits = [turns.book(100.0, 5.0, 2.0) for _ in range(2_000)]
    assert waits[:4] == [5.0, 5.5, 6.0, 6.5]
    assert waits[-1] == 5 + LONGEST_S
    assert turns.book(10_000.0, 5.0, 2.0) == 5.0


async def test_items_that_a_member_sends_away_come_at_its_pace(db: Database) -> None:
    slow = Limiter("sites", 0.1, 1)
    await db.run(store.declare, [slow])
    line = line_of(db, slow)
    assert await line.enter(None) is None
    waits = [await line.enter(None, patience=0.5, in_line=True) or 0.0 for _ in range(4)]
    assert all(8 < later - sooner < 10.5 for sooner, later in pairwise(waits)), waits
    await line._trips.close()


async def test_members_that_share_one_do_not_take_each_others_places(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_MEMBERS", 0)
    await db.run(store.declare, [PLACES])
    limits = ProcessLimits(db, {"shop": PLACES}, worker="w", child=1, seconds=30)
    one, two = limits.line("shop", "one.example"), limits.line("shop", "two.example")
    assert [await one.enter(None), await one.enter(None), await two.enter(None)] == [None] * 3
    assert await rows(db, HELD) == [(3,)]
    two.leave(0.01)
    await two._trips.close()
    assert await rows(db, HELD) == [(2,)]
    assert {key for (key,) in await rows(db, "SELECT key FROM tidemill.limiter_hold")} == {store.REST}

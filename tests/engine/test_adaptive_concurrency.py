"""Tests of the adaptive semaphore."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidemill import Done, Retry
from tidemill.engine.concurrency import AdaptiveSemaphore
from tidemill.telemetry.events import Event, subscribe

REFUSED = Retry("429", throttled=True)


async def settle() -> None:
    """Let all tasks run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


def refuse(crew: AdaptiveSemaphore, *, until: float, started: float | None = None) -> None:
    """Record a window of throttled outcomes that ends at this time."""
    for _ in range(20):
        crew.record_outcome(REFUSED, until - 0.6 if started is None else started, until)


async def entering(crew: AdaptiveSemaphore, count: int, run: object = None) -> list[asyncio.Task[bool]]:
    tasks = [asyncio.create_task(crew.acquire(run)) for _ in range(count)]
    await settle()
    return tasks


def inside(tasks: list[asyncio.Task[bool]]) -> int:
    return sum(task.done() for task in tasks)


async def test_semaphore_admits_up_to_slots_and_next_on_release() -> None:
    crew = AdaptiveSemaphore("k", 3)
    tasks = await entering(crew, 5)
    assert inside(tasks) == 3
    crew.release()
    await settle()
    assert inside(tasks) == 4
    crew.release()
    await settle()
    assert all([await task for task in tasks])


async def test_semaphore_shrinks_and_requests_yield_after_throttling() -> None:
    crew = AdaptiveSemaphore("k", 8, now=0.0)
    await entering(crew, 8)
    assert not crew.should_yield_slot
    refuse(crew, until=1.5)
    assert crew.slots == 2
    assert crew.should_yield_slot
    waiting = await entering(crew, 1)
    for _ in range(6):
        assert crew.should_yield_slot
        crew.release()
    await settle()
    assert inside(waiting) == 0
    crew.release()
    await settle()
    assert inside(waiting) == 1


async def test_semaphore_admits_waiters_when_slots_grow() -> None:
    crew = AdaptiveSemaphore("k", 8, now=0.0)
    refuse(crew, until=1.5)
    tasks = await entering(crew, 8)
    assert inside(tasks) == crew.slots == 2
    now = 1.5
    while crew.start_gap_s:
        now += 1.1
        for _ in range(10):
            crew.record_outcome(Done(), now - 0.1, now)
    await settle()
    assert inside(tasks) == crew.slots == 8


async def test_semaphore_alternates_between_lanes_when_slots_are_scarce() -> None:
    crew = AdaptiveSemaphore("k", 8, now=0.0)
    for until in (1.5, 3.0):
        refuse(crew, until=until)
    assert crew.slots == 1
    first, second = (await entering(crew, 1, "a")), (await entering(crew, 1, "b"))
    assert (inside(first), inside(second)) == (1, 0)
    assert crew.should_yield_slot, "another batch waits for the slot"
    crew.release()
    await settle()
    assert inside(second) == 1


async def test_semaphore_requests_no_yield_without_throttling() -> None:
    crew = AdaptiveSemaphore("k", 1)
    await entering(crew, 2)
    assert not crew.should_yield_slot


async def test_cancel_waiters_ends_waits_of_finished_run_only() -> None:
    crew = AdaptiveSemaphore("k", 1)
    await entering(crew, 1)
    ours, theirs = await entering(crew, 3, "ours"), await entering(crew, 1, "theirs")
    crew.cancel_waiters("ours")
    await settle()
    assert [await task for task in ours] == [False] * 3
    crew.release()
    await settle()
    assert inside(theirs) == 1
    assert await theirs[0]


async def test_cancelled_waiter_does_not_consume_slot() -> None:
    crew = AdaptiveSemaphore("k", 1)
    await entering(crew, 1)
    early, late, last = await entering(crew, 3)
    early.cancel()
    await settle()
    crew.release()
    late.cancel()  # it got the slot, but has not resumed yet
    await settle()
    assert early.cancelled()
    assert late.cancelled()
    assert last.done()
    assert await last


async def test_slot_released_during_cancellation_goes_to_next_waiter() -> None:
    crew = AdaptiveSemaphore("kind", 1)
    assert await crew.acquire(None)
    first, second = await entering(crew, 2)
    first.cancel()
    crew.release()  # before the cancelled task could leave the queue
    await settle()
    assert first.cancelled()
    assert second.done()
    crew.release()
    assert await asyncio.wait_for(crew.acquire(None), 10)


async def test_user_without_slots_gets_next_slot_before_earlier_waiters_of_another_user() -> None:
    crew = AdaptiveSemaphore("k", 2)
    assert await crew.acquire("first batch", 1)
    assert await crew.acquire("first batch", 1)
    second = [asyncio.create_task(crew.acquire("second batch", 1)) for _ in range(3)]
    await settle()
    assert not crew.has_starved_user, "all waiters belong to the user who has the slots"
    other = asyncio.create_task(crew.acquire("batch of another user", 2))
    await settle()
    assert crew.has_starved_user
    crew.release(1)
    await settle()
    assert (other.done(), inside(second), crew.has_starved_user) == (True, 0, False)
    crew.release(1)
    await settle()
    assert inside(second) == 1
    crew.cancel_waiters("second batch")
    await asyncio.gather(*second)


async def test_throttling_of_requests_started_before_cut_causes_no_second_cut() -> None:
    crew = AdaptiveSemaphore("k", 64, now=0.0)
    refuse(crew, until=1.0)
    assert crew.slots == 16
    refuse(crew, until=2.5, started=0.5)
    assert crew.slots == 16
    assert crew.throttled_total == 40, "they are counted"
    refuse(crew, until=4.0, started=1.2)
    assert crew.slots == 4


def test_idle_semaphore_is_not_cut_by_first_throttled_request() -> None:
    crew = AdaptiveSemaphore("k", 50, now=0.0)
    crew.record_outcome(REFUSED, 3_600.0, 3_600.1)
    assert crew.slots == 50, "one response is not enough for a decision"
    for _ in range(99):
        crew.record_outcome(Done(), 3_600.0, 3_600.5)
    crew.record_outcome(Done(), 3_600.0, 3_601.5)
    assert 40 < crew.slots < 50, "one of a hundred is evidence"


def test_request_starts_are_reserved_at_even_gaps() -> None:
    crew = AdaptiveSemaphore("k", 50, now=0.0)
    for _ in range(30):
        crew.record_outcome(Done(), 0.0, 0.5)
    refuse(crew, until=1.0)
    gap = crew.start_gap_s
    assert gap == pytest.approx(0.5 / crew.controller.level)
    waits = [crew.reserve_start(2.0) for _ in range(5)]
    assert waits[0] <= 0
    assert [later - sooner for sooner, later in itertools.pairwise(waits)] == pytest.approx([gap] * 4)
    assert crew.reserve_start(100.0) <= 0, "unused starts do not accumulate"
    assert crew.reserve_start(100.0) > gap / 2


async def heard(act: Callable[[], Awaitable[None]]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []

    def hear(event: Event) -> None:
        if event.name == "concurrency.changed":
            told.append(dict(event.fields))

    unsubscribe = subscribe(hear)
    try:
        await act()
    finally:
        unsubscribe()
    return told


async def test_concurrency_changed_event_is_not_emitted_for_every_step() -> None:
    crew = AdaptiveSemaphore("k", 50, now=0.0)

    async def act() -> None:
        refuse(crew, until=1.0)
        now = 1.0
        while crew.slots < 50:
            now += 1.1
            crew.record_outcome(Done(), now - 0.1, now)
            for _ in range(10):
                crew.record_outcome(Done(), now - 0.1, now)

    told = await heard(act)
    assert told[0] == {"kind": "k", "was": 50, "now": 13, "reason": "throttled"}
    assert told[-1]["now"] == 50
    assert told[-1]["reason"] == "calm"
    assert len(told) < 15

"""A gate whose width follows what comes back."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidemill import Done, Retry
from tidemill.engine.crew import Crew
from tidemill.telemetry.events import subscribe

REFUSED = Retry("429", throttled=True)


async def settle() -> None:
    """Let everybody who can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


def refuse(crew: Crew, *, until: float, started: float | None = None) -> None:
    """A window full of refusals that ends at that time."""
    for _ in range(20):
        crew.note(REFUSED, until - 0.6 if started is None else started, until)


async def entering(crew: Crew, count: int, run: object = None) -> list[asyncio.Task[bool]]:
    tasks = [asyncio.create_task(crew.enter(run)) for _ in range(count)]
    await settle()
    return tasks


def inside(tasks: list[asyncio.Task[bool]]) -> int:
    return sum(task.done() for task in tasks)


async def test_so_many_are_let_in_and_the_next_when_one_leaves() -> None:
    crew = Crew("k", 3)
    tasks = await entering(crew, 5)
    assert inside(tasks) == 3
    crew.leave()
    await settle()
    assert inside(tasks) == 4
    crew.leave()
    await settle()
    assert all([await task for task in tasks])


async def test_after_refusals_fewer_are_let_in_and_those_inside_are_asked_to_leave() -> None:
    crew = Crew("k", 8, now=0.0)
    await entering(crew, 8)
    assert not crew.crowded
    refuse(crew, until=1.5)
    assert crew.places == 2
    assert crew.crowded
    waiting = await entering(crew, 1)
    for _ in range(6):
        assert crew.crowded
        crew.leave()
    await settle()
    assert inside(waiting) == 0
    crew.leave()
    await settle()
    assert inside(waiting) == 1


async def test_a_crew_that_grows_lets_those_in_who_wait() -> None:
    crew = Crew("k", 8, now=0.0)
    refuse(crew, until=1.5)
    tasks = await entering(crew, 8)
    assert inside(tasks) == crew.places == 2
    now = 1.5
    while crew.gap_s:
        now += 1.1
        for _ in range(10):
            crew.note(Done(), now - 0.1, now)
    await settle()
    assert inside(tasks) == crew.places == 8


async def test_lanes_take_turns_where_places_are_few() -> None:
    crew = Crew("k", 8, now=0.0)
    for until in (1.5, 3.0):
        refuse(crew, until=until)
    assert crew.places == 1
    first, second = (await entering(crew, 1, "a")), (await entering(crew, 1, "b"))
    assert (inside(first), inside(second)) == (1, 0)
    assert crew.crowded, "somebody waits: after this item it is their turn"
    crew.leave()
    await settle()
    assert inside(second) == 1


async def test_nobody_is_asked_to_leave_for_others_while_nothing_is_held_back() -> None:
    crew = Crew("k", 1)
    await entering(crew, 2)
    assert not crew.crowded


async def test_those_of_a_run_that_is_over_need_no_place() -> None:
    crew = Crew("k", 1)
    await entering(crew, 1)
    ours, theirs = await entering(crew, 3, "ours"), await entering(crew, 1, "theirs")
    crew.dismiss("ours")
    await settle()
    assert [await task for task in ours] == [False] * 3
    crew.leave()
    await settle()
    assert inside(theirs) == 1
    assert await theirs[0]


async def test_who_is_cancelled_while_waiting_takes_no_place_along() -> None:
    crew = Crew("k", 1)
    await entering(crew, 1)
    early, late, last = await entering(crew, 3)
    early.cancel()
    await settle()
    crew.leave()
    late.cancel()  # it was let in, and has not noticed yet
    await settle()
    assert early.cancelled()
    assert late.cancelled()
    assert last.done()
    assert await last


async def test_a_place_that_falls_free_in_the_moment_of_a_cancellation_goes_to_the_next() -> None:
    crew = Crew("kind", 1)
    assert await crew.enter(None)
    first, second = await entering(crew, 2)
    first.cancel()
    crew.leave()  # before the cancelled one has had a chance to step out of the line
    await settle()
    assert first.cancelled()
    assert second.done()
    crew.leave()
    assert await asyncio.wait_for(crew.enter(None), 10)


async def test_refusals_from_before_a_cut_are_no_reason_for_another() -> None:
    crew = Crew("k", 64, now=0.0)
    refuse(crew, until=1.0)
    assert crew.places == 16
    refuse(crew, until=2.5, started=0.5)
    assert crew.places == 16
    assert crew.throttled == 40, "counted they are"
    refuse(crew, until=4.0, started=1.2)
    assert crew.places == 4


def test_a_crew_that_had_nothing_to_do_is_not_cut_by_the_first_refusal() -> None:
    crew = Crew("k", 50, now=0.0)
    crew.note(REFUSED, 3_600.0, 3_600.1)
    assert crew.places == 50, "one of one is not everything"
    for _ in range(99):
        crew.note(Done(), 3_600.0, 3_600.5)
    crew.note(Done(), 3_600.0, 3_601.5)
    assert 40 < crew.places < 50, "one of a hundred is what it is"


def test_starts_are_booked_at_even_gaps() -> None:
    crew = Crew("k", 50, now=0.0)
    for _ in range(30):
        crew.note(Done(), 0.0, 0.5)
    refuse(crew, until=1.0)
    gap = crew.gap_s
    assert gap == pytest.approx(0.5 / crew.control.level)
    waits = [crew.book(2.0) for _ in range(5)]
    assert waits[0] <= 0
    assert [later - sooner for sooner, later in itertools.pairwise(waits)] == pytest.approx([gap] * 4)
    assert crew.book(100.0) <= 0, "what was not used is not saved up"
    assert crew.book(100.0) > gap / 2


async def heard(act: Callable[[], Awaitable[None]]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []

    def hear(name: str, fields: dict[str, Any]) -> None:
        if name == "concurrency.changed":
            told.append(fields)

    unsubscribe = subscribe(hear)
    try:
        await act()
    finally:
        unsubscribe()
    return told


async def test_changes_are_told_but_not_every_step() -> None:
    crew = Crew("k", 50, now=0.0)

    async def act() -> None:
        refuse(crew, until=1.0)
        now = 1.0
        while crew.places < 50:
            now += 1.1
            crew.note(Done(), now - 0.1, now)
            for _ in range(10):
                crew.note(Done(), now - 0.1, now)

    told = await heard(act)
    assert told[0] == {"kind": "k", "was": 50, "now": 13, "reason": "throttled"}
    assert told[-1]["now"] == 50
    assert told[-1]["reason"] == "calm"
    assert len(told) < 15

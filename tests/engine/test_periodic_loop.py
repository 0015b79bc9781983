"""Tests of the periodic loop: tick, wait, wake, stop and errors."""

import asyncio
import time

import pytest

from support import until
from tidemill.engine import periodic_loop as service
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.telemetry.events import Event, subscribe


class Ticking(PeriodicLoop):
    """A loop with scripted ticks: a number is returned as the wait, an exception is raised."""

    name = "ticking"

    def __init__(self, script: list[float | Exception]) -> None:
        super().__init__()
        self.script = script
        self.ticks = 0
        self.ticked = asyncio.Event()

    async def tick(self) -> float:
        step = self.script[self.ticks]
        self.ticks += 1
        self.ticked.set()
        if self.ticks == len(self.script):
            self.request_stop()
        if isinstance(step, Exception):
            raise step
        return step


async def test_loop_ticks_without_wait_while_work_remains() -> None:
    loop = Ticking([0.0] * 100)
    async with asyncio.timeout(5):
        await loop.run()
    assert loop.ticks == 100


async def test_loop_wake_ends_wait_early() -> None:
    loop = Ticking([600.0, 0.0])
    task = asyncio.create_task(loop.run())
    await until(loop.ticked)
    loop.wake()
    async with asyncio.timeout(5):
        await task
    assert loop.ticks == 2


async def test_loop_wake_during_tick_is_not_lost() -> None:
    class WokenInside(Ticking):
        async def tick(self) -> float:
            self.wake()
            return await super().tick()

    loop = WokenInside([600.0, 600.0])
    async with asyncio.timeout(5):
        await loop.run()
    assert loop.ticks == 2


async def test_loop_stop_ends_wait_immediately() -> None:
    loop = Ticking([600.0, 0.0])
    task = asyncio.create_task(loop.run())
    await until(loop.ticked)
    assert not loop.is_stopping
    loop.request_stop()
    async with asyncio.timeout(5):
        await task
    assert loop.is_stopping
    assert loop.ticks == 1


async def test_loop_waits_returned_interval_without_wake() -> None:
    loop = Ticking([0.2, 0.0])
    started = time.monotonic()
    await loop.run()
    assert time.monotonic() - started >= 0.19


async def test_loop_emits_event_and_continues_after_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LOOP_ERROR_PAUSE_S", 0.01)
    heard: list[Event] = []
    unsubscribe = subscribe(heard.append)
    try:
        loop = Ticking([ValueError("no"), 0.0, KeyError("x"), 0.0])
        async with asyncio.timeout(5):
            await loop.run()
    finally:
        unsubscribe()
    assert loop.ticks == 4
    assert heard == [
        ("loop.failed", {"loop": "ticking", "error": "ValueError: no"}),
        ("loop.failed", {"loop": "ticking", "error": "KeyError: 'x'"}),
    ]


async def test_loop_is_broken_after_failures_in_a_row_only_if_it_worked_before() -> None:
    failures: list[float | Exception] = [RuntimeError("no")] * service.BROKEN_AFTER_FAILED_TICKS
    worked, never_worked = Ticking([0.0, *failures, 0.0]), Ticking(failures)
    for _ in failures:
        await worked.tick_safely()
        await never_worked.tick_safely()
    assert not worked.is_broken
    assert not never_worked.is_broken, "a new process would fail in the same way"
    await worked.tick_safely()
    assert worked.is_broken
    await worked.tick_safely()
    assert not worked.is_broken

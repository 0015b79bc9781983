"""Tests of the shared or exclusive lock."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from support import until
from tidemill.engine.concurrency import SharedExclusiveLock


async def settle() -> None:
    """Let all tasks run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


class Visitor:
    """A task that holds the lock until it is released."""

    def __init__(self, gate: SharedExclusiveLock, *, alone: bool = False) -> None:
        self.inside = False
        self._leave = asyncio.Event()
        self.task = asyncio.create_task(self._visit(gate, alone))

    async def _visit(self, gate: SharedExclusiveLock, alone: bool) -> None:
        async with gate.hold(exclusive=alone):
            self.inside = True
            await until(self._leave)
        self.inside = False

    async def leave(self) -> None:
        self._leave.set()
        await self.task


async def test_lock_is_shared_by_many_holders() -> None:
    gate = SharedExclusiveLock()
    async with AsyncExitStack() as stack:
        for _ in range(50):
            await stack.enter_async_context(gate.hold(exclusive=False))


async def test_exclusive_lock_waits_for_shared_holders() -> None:
    gate = SharedExclusiveLock()
    first, second = Visitor(gate), Visitor(gate)
    await settle()
    suspect = Visitor(gate, alone=True)
    await settle()
    assert (first.inside, second.inside, suspect.inside) == (True, True, False)
    await first.leave()
    await settle()
    assert not suspect.inside
    await second.leave()
    await settle()
    assert suspect.inside
    await suspect.leave()


async def test_exclusive_lock_blocks_all_other_holders() -> None:
    gate = SharedExclusiveLock()
    suspect = Visitor(gate, alone=True)
    await settle()
    neighbour, other = Visitor(gate), Visitor(gate, alone=True)
    await settle()
    assert (suspect.inside, neighbour.inside, other.inside) == (True, False, False)
    await suspect.leave()
    await settle()
    assert other.inside != neighbour.inside, "the two never hold it together"
    await asyncio.gather(neighbour.leave(), other.leave())


async def test_waiting_exclusive_lock_precedes_new_shared_holders() -> None:
    gate = SharedExclusiveLock()
    first = Visitor(gate)
    await settle()
    suspect = Visitor(gate, alone=True)
    await settle()
    newcomer = Visitor(gate)
    await settle()
    assert not newcomer.inside
    await first.leave()
    await settle()
    assert (suspect.inside, newcomer.inside) == (True, False)
    await suspect.leave()
    await settle()
    assert newcomer.inside
    await newcomer.leave()


async def test_cancelled_exclusive_wait_unblocks_shared_holders() -> None:
    gate = SharedExclusiveLock()
    first, suspect = Visitor(gate), Visitor(gate, alone=True)
    await settle()
    newcomer = Visitor(gate)
    await settle()
    suspect.task.cancel()
    await settle()
    assert newcomer.inside
    await asyncio.gather(first.leave(), newcomer.leave())


async def test_lock_is_released_when_holder_raises() -> None:
    gate = SharedExclusiveLock()
    for alone in (True, False):
        with pytest.raises(ZeroDivisionError):
            async with gate.hold(exclusive=alone):
                raise ZeroDivisionError
    async with asyncio.timeout(10), gate.hold(exclusive=True):
        pass

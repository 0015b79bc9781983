"""Many pass together, or one alone."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tidemill.engine.gate import Gate


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


class Visitor:
    """Somebody who goes through the gate and stays until told to leave."""

    def __init__(self, gate: Gate, *, alone: bool = False) -> None:
        self.inside = False
        self._leave = asyncio.Event()
        self.task = asyncio.create_task(self._visit(gate, alone))

    async def _visit(self, gate: Gate, alone: bool) -> None:
        async with gate.passing(alone=alone):
            self.inside = True
            await self._leave.wait()
        self.inside = False

    async def leave(self) -> None:
        self._leave.set()
        await self.task


async def test_many_pass_together() -> None:
    gate = Gate()
    async with AsyncExitStack() as stack:
        for _ in range(50):
            await stack.enter_async_context(gate.passing(alone=False))


async def test_one_who_must_be_alone_waits_until_the_others_have_left() -> None:
    gate = Gate()
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


async def test_nobody_comes_in_while_one_is_alone() -> None:
    gate = Gate()
    suspect = Visitor(gate, alone=True)
    await settle()
    neighbour, other = Visitor(gate), Visitor(gate, alone=True)
    await settle()
    assert (suspect.inside, neighbour.inside, other.inside) == (True, False, False)
    await suspect.leave()
    await settle()
    assert other.inside != neighbour.inside, "the two never meet"
    await asyncio.gather(neighbour.leave(), other.leave())


async def test_who_waits_to_be_alone_goes_before_newcomers() -> None:
    gate = Gate()
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


async def test_who_gives_up_waiting_lets_the_others_pass() -> None:
    gate = Gate()
    first, suspect = Visitor(gate), Visitor(gate, alone=True)
    await settle()
    newcomer = Visitor(gate)
    await settle()
    suspect.task.cancel()
    await settle()
    assert newcomer.inside
    await asyncio.gather(first.leave(), newcomer.leave())


async def test_an_error_inside_opens_the_gate_again() -> None:
    gate = Gate()
    for alone in (True, False):
        with pytest.raises(ZeroDivisionError):
            async with gate.passing(alone=alone):
                raise ZeroDivisionError
    async with asyncio.timeout(10), gate.passing(alone=True):
        pass

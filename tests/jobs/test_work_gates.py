"""Gates: one user cannot occupy all threads for slow work, and further calls wait for a limited time."""

import asyncio
import threading

import pytest

from tidemill.core.errors import Busy, TooManyRequests
from tidemill.jobs.work_gates import WorkGate

ADA, BOB, EVE = 1, 2, 3


async def test_gate_leaves_slots_for_other_users_when_one_user_has_many_calls() -> None:
    gate, end = WorkGate("previews", concurrency=3, per_user=2, wait_max_s=20), threading.Event()
    slow = [asyncio.create_task(gate.run(ADA, end.wait, 20)) for _ in range(12)]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert await gate.run(BOB, lambda: "fast") == "fast"
    end.set()
    assert await asyncio.gather(*slow) == [True] * 12


async def test_gate_rejects_calls_that_wait_too_long() -> None:
    gate, end = WorkGate("previews", concurrency=2, per_user=1, wait_max_s=0.05), threading.Event()
    slow = [asyncio.create_task(gate.run(user, end.wait, 20)) for user in (ADA, BOB)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests, match="You have too many previews in progress"):
        await gate.run(ADA, lambda: None)
    with pytest.raises(Busy, match="Too many previews are in progress"):
        await gate.run(EVE, lambda: None)
    end.set()
    await asyncio.gather(*slow)
    assert await gate.run(EVE, lambda: 7) == 7


async def test_gate_keeps_slot_of_cancelled_call_until_its_thread_ends() -> None:
    gate, end = WorkGate("previews", concurrency=1, per_user=1, wait_max_s=0.05), threading.Event()
    started = threading.Event()

    def work() -> None:
        started.set()
        end.wait(20)

    call = asyncio.create_task(gate.run(ADA, work))
    await asyncio.to_thread(started.wait, 10)
    call.cancel()
    await asyncio.wait([call])
    with pytest.raises(Busy):
        await gate.run(BOB, lambda: None)
    end.set()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await gate.run(ADA, lambda: 7) == 7
                break
            except (Busy, TooManyRequests):
                continue

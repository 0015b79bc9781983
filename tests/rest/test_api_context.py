"""RequestCoalescer: no result is older than its request, and few queries serve many requests."""

import asyncio
from itertools import count

import pytest

from support import until
from tidemill.core.coalescers import RequestCoalescer


class Source:
    """A query that returns its number when it is released."""

    def __init__(self) -> None:
        self.begun = 0
        self.gates: list[asyncio.Event] = []

    async def fetch(self) -> int:
        gate, number = asyncio.Event(), self.begun
        self.begun += 1
        self.gates.append(gate)
        await until(gate)
        return number


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def ask(shared: RequestCoalescer[int], source: Source, n: int = 1) -> list["asyncio.Task[int]"]:
    return [asyncio.create_task(shared.get("key", source.fetch)) for _ in range(n)]


async def test_request_during_running_fetch_shares_next_fetch() -> None:
    shared, source = RequestCoalescer[int](), Source()
    first = ask(shared, source)
    await settle()
    late = ask(shared, source, 100)
    await settle()
    assert source.begun == 1
    source.gates[0].set()
    await settle()
    later = ask(shared, source, 3)
    await settle()
    assert source.begun == 2
    source.gates[1].set()
    await settle()
    source.gates[2].set()
    found = [await asyncio.gather(*tasks) for tasks in (first, late, later)]
    assert found == [[0], [1] * 100, [2] * 3]


async def test_coalescer_keeps_no_result_after_last_request() -> None:
    shared, numbers = RequestCoalescer[int](), count()

    async def fetch() -> int:
        return next(numbers)

    assert [await shared.get("key", fetch) for _ in range(3)] == [0, 1, 2]
    assert (shared._under_way, shared._waiting) == ({}, {})


async def test_failed_fetch_is_raised_to_all_requests_and_not_cached() -> None:
    shared = RequestCoalescer[int]()

    async def fail() -> int:
        await asyncio.sleep(0)
        raise LookupError("gone")

    found = await asyncio.gather(*(shared.get("key", fail) for _ in range(5)), return_exceptions=True)
    assert {type(error) for error in found} == {LookupError}
    source = Source()
    [task] = ask(shared, source)
    await settle()
    source.gates[0].set()
    assert await task == 0


async def test_cancelled_request_does_not_cancel_shared_fetch() -> None:
    shared, source = RequestCoalescer[int](), Source()
    [impatient] = ask(shared, source)
    await settle()
    patient = ask(shared, source, 2)
    await settle()
    impatient.cancel()
    await settle()
    source.gates[0].set()
    await settle()
    source.gates[1].set()
    assert await asyncio.gather(*patient) == [1, 1]
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_requests_with_different_keys_are_fetched_concurrently() -> None:
    shared, one, other = RequestCoalescer[int](), Source(), Source()
    tasks = [asyncio.create_task(shared.get(key, source.fetch)) for key, source in (("a", one), ("b", other))]
    await settle()
    assert (one.begun, other.begun) == (1, 1)
    for source in (one, other):
        source.gates[0].set()
    assert await asyncio.gather(*tasks) == [0, 0]

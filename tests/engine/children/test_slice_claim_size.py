"""Tests of the claim size in a slice: items that can finish before its end."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from engine.children.scenes import Start, kick
from support import add_job
from tidemill import Item, Mill
from tidemill.app.runtime_factory import make_engine_context
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.context import EngineContext
from tidemill.engine.lane import claim_from_job
from tidemill.engine.sizing import SystemLoad
from tidemill.store.database import Database


@pytest.fixture
def context(db: Database, mill: Mill) -> Iterator[EngineContext]:
    @mill.handler("test", concurrency=20)
    async def run(item: Item) -> None: ...

    @mill.batch_handler("whole")
    async def whole(items: list[Item]) -> None: ...

    book = SharedState.create(1)
    yield make_engine_context(db, mill.settings, mill.registry, worker="w1", shared_state=book)
    book.close()


async def taken(context: EngineContext, kind: str) -> int:
    """Return how many items of a job of 1,000 are claimed at once."""
    lease = await claim_from_job(context, await add_job(context.db, 1_000, kind), kind, uuid4())
    assert lease is not None
    return lease.open


def claim_size(context: EngineContext) -> int:
    handler = context.handlers.get("test")
    slots = context.get_semaphore(handler).slots
    return context.sizing.compute_claim_size(handler, slots=slots, permits_per_s=None)


async def test_claim_size_is_limited_by_remaining_slice_time(context: EngineContext) -> None:
    context.sizing.record_pace("test", items=100, seconds=1.0)
    assert 340 <= await taken(context, "test") <= 360, "the usual 5 s, times the safety factor"
    context.reset_for_slice(1.0)
    assert 10 <= await taken(context, "test") <= 70
    context.reset_for_slice(0.0)
    assert await taken(context, "test") == 10, "two lanes of ten fill a concurrency of twenty"
    context.reset_for_slice(60.0)
    assert 340 <= await taken(context, "test") <= 360, "a long slice claims no more at a time than a worker"


async def test_first_claim_of_batch_handler_in_slice_is_one_item(context: EngineContext) -> None:
    assert await taken(context, "whole") == 1_000
    context.reset_for_slice(5.0)
    assert await taken(context, "whole") == 1
    assert await taken(context, "test") == 20, "single items are not: unfinished items are released"


async def test_claim_size_for_slow_items_still_fills_concurrency(context: EngineContext) -> None:
    size = await taken(context, "test")
    for _ in range(30):  # 8 s each, independent of the concurrency
        context.sizing.record_pace("test", items=size, seconds=8.0)
        size = claim_size(context)
    assert size == 10


async def test_claim_size_in_slice_shorter_than_item_still_fills_concurrency(start: Start, db: Database) -> None:
    slow = """
        @mill.handler("test", concurrency=20)
        async def run(item):
            await asyncio.sleep(0.5)
    """
    worker = await start(slow, cpu_high_percent=100_000)
    job_id = await add_job(db, 10_000)
    slices = [await kick(worker, job_id, 0.4) for _ in range(10)]
    assert max(each.settled for each in slices[-3:]) >= 20


async def test_claim_size_shrinks_under_cpu_load_except_for_quick_items(
    context: EngineContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.sizing.record_pace("test", items=100, seconds=1.0)
    usual = claim_size(context)
    monkeypatch.setattr(context.sizing.load_monitor, "get_recent_load", lambda: SystemLoad(claim_time_factor=0.5))
    assert claim_size(context) == usual // 2
    for _ in range(50):
        context.sizing.record_pace("test", items=1_000, seconds=0.1)
    assert claim_size(context) == 1_000, "fast items do not delay the end of the slice"


async def test_claim_size_shrinks_under_memory_pressure_to_at_least_one(
    context: EngineContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.sizing.record_pace("test", items=1_000, seconds=0.1)
    monkeypatch.setattr(context.sizing.load_monitor, "get_recent_load", lambda: SystemLoad(claim_size_factor=0.5))
    assert claim_size(context) == 500
    context.sizing.record_pace("test", items=1, seconds=1e6)
    assert claim_size(context) == 5, "half of the concurrency"
    monkeypatch.setattr(context.sizing.load_monitor, "get_recent_load", lambda: SystemLoad(claim_size_factor=0.01))
    assert claim_size(context) == 1


async def test_claim_size_shrinks_with_adaptive_concurrency_slots(context: EngineContext) -> None:
    context.sizing.record_pace("test", items=1, seconds=1e6)
    assert claim_size(context) == 10
    context.get_semaphore(context.handlers.get("test")).slots = 4
    assert claim_size(context) == 2

"""How much a slice takes at a time: what should be finished before it is over."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from slices.scenes import Start, kick
from support import add_job
from tidemill import Item, Mill
from tidemill.app import make_context
from tidemill.engine.claim import claim_from
from tidemill.engine.context import Context
from tidemill.engine.logbook import Logbook
from tidemill.engine.strain import Strain
from tidemill.store.database import Database


@pytest.fixture
def context(db: Database, mill: Mill) -> Iterator[Context]:
    @mill.handler("test", concurrency=20)
    async def run(item: Item) -> None: ...

    @mill.batch_handler("whole")
    async def whole(items: list[Item]) -> None: ...

    book = Logbook.create(1)
    yield make_context(db, mill.settings, mill.registry, worker="w1", book=book)
    book.close()


async def taken(context: Context, kind: str) -> int:
    """How many items a claim takes of a job of 1,000."""
    lease = await claim_from(context, await add_job(context.db, 1_000, kind), kind, uuid4())
    assert lease is not None
    return lease.open


async def test_a_claim_takes_what_fits_into_the_rest_of_the_slice(context: Context) -> None:
    context.learn("test", items=100, seconds=1.0)
    assert 340 <= await taken(context, "test") <= 360, "of the usual 5 s, by the safety factor"
    context.begin_slice(1.0)
    assert 10 <= await taken(context, "test") <= 70
    context.begin_slice(0.0)
    assert await taken(context, "test") == 10, "two lanes of ten fill a concurrency of twenty"
    context.begin_slice(60.0)
    assert 340 <= await taken(context, "test") <= 360, "a long slice takes no more at a time than a worker"


async def test_a_handler_of_whole_batches_is_tried_with_the_fewest_first(context: Context) -> None:
    assert await taken(context, "whole") == 1_000
    context.begin_slice(5.0)
    assert await taken(context, "whole") == 1
    assert await taken(context, "test") == 20, "one of single items is not: what is not finished goes back"


async def test_slow_items_do_not_shrink_the_claim_below_what_runs_at_a_time(context: Context) -> None:
    size = await taken(context, "test")
    for _ in range(30):  # 8 s each, however many of them at a time
        context.learn("test", items=size, seconds=8.0)
        size = context.claim_size(context.handlers.get("test"))
    assert size == 10


async def test_neither_does_a_slice_that_is_shorter_than_an_item(start: Start, db: Database) -> None:
    slow = """
        @mill.handler("test", concurrency=20)
        async def run(item):
            await asyncio.sleep(0.5)
    """
    worker = await start(slow, cpu_high_percent=100_000)
    job_id = await add_job(db, 10_000)
    slices = [await kick(worker, job_id, 0.4) for _ in range(10)]
    assert max(each.settled for each in slices[-3:]) >= 20


async def test_a_machine_without_time_takes_claims_of_less_of_it(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = context.handlers.get("test")
    context.learn("test", items=100, seconds=1.0)
    usual = context.claim_size(handler)
    monkeypatch.setattr(context.machine, "strain", lambda: Strain(time=0.5))
    assert context.claim_size(handler) == usual // 2
    for _ in range(50):
        context.learn("test", items=1_000, seconds=0.1)
    assert context.claim_size(handler) == 1_000, "quick items hold up nobody"


async def test_a_machine_without_memory_takes_fewer_items_but_not_less_than_the_least(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = context.handlers.get("test")
    context.learn("test", items=1_000, seconds=0.1)
    monkeypatch.setattr(context.machine, "strain", lambda: Strain(room=0.5))
    assert context.claim_size(handler) == 500
    context.learn("test", items=1, seconds=1e6)
    assert context.claim_size(handler) == 5, "half of what fills the concurrency"
    monkeypatch.setattr(context.machine, "strain", lambda: Strain(room=0.01))
    assert context.claim_size(handler) == 1


async def test_a_crew_with_few_places_is_filled_by_fewer(context: Context) -> None:
    handler = context.handlers.get("test")
    context.learn("test", items=1, seconds=1e6)
    assert context.claim_size(handler) == 10
    context.crew(handler).places = 4
    assert context.claim_size(handler) == 2

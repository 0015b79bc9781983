"""Tests of handlers with a limiter or with permits of their own."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from limits.model import most_above
from support import assert_sound, eventually, fates, job_of, rows
from tidemill import Item, Mill, Retry
from tidemill.core.status import JobStatus
from tidemill.store.database import Database
from tidemill.testing import drain


class TooMany(Exception):
    """As HTTP clients raise it."""

    status_code = 429

    def __init__(self, after: str | None = None) -> None:
        super().__init__("429 Too Many Requests")
        self.headers = {} if after is None else {"Retry-After": after}


async def test_limited_handler_starts_items_at_limiter_rate(mill: Mill, db: Database) -> None:
    mill.limiter("shop", "50/s", burst=5)
    starts = []

    @mill.handler("call", limit="shop")
    async def call(item: Item) -> None:
        starts.append(time.monotonic())

    job_id = await mill.submit_async("call", range(30))
    await drain(mill, db=db)
    assert (await job_of(db, job_id)).counts.done == 30
    assert most_above(starts, 50, 5) <= 0
    assert starts[-1] - starts[0] < 10


async def test_limited_handler_runs_at_most_concurrency_items(mill: Mill, db: Database) -> None:
    mill.limiter("shop", concurrency=3)
    inside, most = 0, 0

    @mill.handler("call", limit="shop")
    async def call(item: Item) -> None:
        nonlocal inside, most
        inside, most = inside + 1, max(most, inside + 1)
        await eventually(all_are_taken, within=20)
        inside -= 1

    async def all_are_taken() -> bool:
        return most >= 3

    await mill.submit_async("call", range(20))
    await drain(mill, db=db)
    assert most == 3
    assert await rows(db, "SELECT coalesce(sum(held), 0) FROM tidemill.limiter_hold") == [(0,)]


async def test_throttled_item_blocks_limiter_for_retry_after_uncharged(mill: Mill, db: Database) -> None:
    mill.limiter("shop", "100/s")
    starts = []

    @mill.handler("call", limit="shop", max_attempts=1, concurrency=1)
    async def call(item: Item) -> None:
        starts.append(time.monotonic())
        if len(starts) == 3:
            raise TooMany("1")

    job_id = await mill.submit_async("call", range(8))
    await drain(mill, db=db)
    assert await fates(db, job_id) == {("done", None, 1): 8}
    assert starts[3] - starts[2] >= 0.9
    [(refused, share)] = await rows(db, "SELECT refused, share FROM tidemill.limiter")
    assert refused == 1
    assert 0.5 <= share < 0.6


async def test_long_block_releases_batch_and_job_is_not_claimed(mill: Mill, db: Database) -> None:
    mill.limiter("shop", "100/s")
    calls = []

    @mill.handler("call", limit="shop")
    async def call(item: Item) -> None:
        calls.append(item.seq)
        raise Retry("slow down", after=3600, throttled=True)

    job_id = await mill.submit_async("call", range(100))
    await drain(mill, retries=False, db=db)
    claimed = len(calls)
    await drain(mill, retries=False, db=db)  # another process, which does not know of the block yet
    assert len(calls) == claimed < 100
    job = await job_of(db, job_id)
    assert job.counts.pending == 100 - claimed
    assert await rows(db, "SELECT count(*) FROM tidemill.batch WHERE state = 'leased'") == [(0,)]
    await assert_sound(db, job_id)


async def test_limiter_members_do_not_wait_for_each_other(mill: Mill, db: Database) -> None:
    mill.limiter("sites", delay="10s")
    begun: dict[str, list[float]] = {}

    @mill.handler("fetch", limit="sites", limit_by=lambda item: item.input["site"])
    async def fetch(item: Item) -> None:
        begun.setdefault(item.input["site"], []).append(time.monotonic())

    pages = [{"site": "slow.example"}] * 5 + [{"site": f"{n}.example"} for n in range(6)]
    job_id = await mill.submit_async("fetch", pages)
    await drain(mill, retries=False, db=db)
    assert {site: len(times) for site, times in begun.items()} == {page["site"]: 1 for page in pages}
    # Items that would wait longer than a batch may take are retried, uncharged.
    assert await fates(db, job_id) == {("done", None, 1): 7, ("retry_wait", "limited", 0): 4}
    await assert_sound(db, job_id)


async def test_throttled_item_blocks_only_its_limiter_member(mill: Mill, db: Database) -> None:
    mill.limiter("sites", "100/s")

    @mill.handler("fetch", limit="sites", limit_by=lambda item: item.input)
    async def fetch(item: Item) -> None:
        if item.input == "bad.example":
            raise TooMany("3600")

    await mill.submit_async("fetch", ["bad.example", "good.example"] * 10)
    await drain(mill, retries=False, db=db)
    found = await rows(db, "SELECT key FROM tidemill.limiter WHERE blocked_until > tidemill.now()")
    assert found == [("bad.example",)]


async def test_limit_by_error_fails_its_item(mill: Mill, db: Database) -> None:
    mill.limiter("sites", "100/s")

    @mill.handler("fetch", limit="sites", limit_by=lambda item: item.input["site"], max_attempts=1)
    async def fetch(item: Item) -> None: ...

    job_id = await mill.submit_async("fetch", [{"site": "a.example"}, {}, {"site": 7}])
    await drain(mill, db=db)
    assert await fates(db, job_id) == {("done", None, 1): 1, ("failed", "exhausted", 1): 2}


async def test_limited_batch_handler_takes_one_permit_per_batch(mill: Mill, db: Database) -> None:
    mill.limiter("shop", "20/s", burst=2)
    starts = []

    @mill.batch_handler("calls", limit="shop")
    async def calls(items: list[Item]) -> None:
        starts.append(time.monotonic())

    job_id = await mill.submit_async("calls", range(3_000))
    await drain(mill, db=db)
    assert (await job_of(db, job_id)).status is JobStatus.COMPLETED
    assert len(starts) == 3
    assert await rows(db, "SELECT taken FROM tidemill.limiter") == [(3,)]


async def test_throttled_batch_blocks_limiter(mill: Mill, db: Database) -> None:
    mill.limiter("shop", "20/s")

    @mill.batch_handler("calls", limit="shop")
    async def calls(items: list[Item]) -> None:
        raise TooMany("600")

    job_id = await mill.submit_async("calls", range(3_000))
    await drain(mill, retries=False, db=db)
    assert await rows(db, "SELECT refused FROM tidemill.limiter WHERE blocked_until > tidemill.now()") == [(1,)]
    assert (await job_of(db, job_id)).counts.retry_wait == 1_000


@pytest.mark.parametrize("in_thread", [False, True])
async def test_mill_limit_takes_permit_for_each_call_of_handler(mill: Mill, db: Database, in_thread: bool) -> None:
    mill.limiter("shop", "50/s", burst=5)
    mill.limiter("geo", concurrency=1)
    starts: list[float] = []
    handlers: Sequence[Any] = (_asks(mill, starts), _asks_in_a_thread(mill, starts))
    mill.handler("calls", concurrency=5)(handlers[in_thread])
    job_id = await mill.submit_async("calls", range(6))
    await drain(mill, db=db)
    assert (await job_of(db, job_id)).counts.done == 6
    assert len(starts) == 18
    assert most_above(sorted(starts), 50, 5) <= 0


def _asks(mill: Mill, starts: list[float]) -> Any:
    async def calls(item: Item) -> None:
        for _ in range(3):
            async with mill.limit("geo"), mill.limit("shop"):
                starts.append(time.monotonic())

    return calls


def _asks_in_a_thread(mill: Mill, starts: list[float]) -> Any:
    def calls(item: Item) -> None:
        for _ in range(3):
            with mill.limit("geo"), mill.limit("shop"):
                starts.append(time.monotonic())

    return calls


async def test_throttled_call_blocks_only_limiter_of_that_call(mill: Mill, db: Database) -> None:
    mill.limiter("shop", "100/s")
    mill.limiter("geo", "100/s")
    asked = []

    @mill.handler("calls", limit="shop")
    async def calls(item: Item) -> None:
        async with mill.limit("geo"):
            asked.append(item.seq)
            raise TooMany("600")

    job_id = await mill.submit_async("calls", range(3))
    await drain(mill, retries=False, db=db)
    found = await rows(db, "SELECT name FROM tidemill.limiter WHERE blocked_until > tidemill.now()")
    assert found == [("geo",)]
    # Items that arrive during the block are retried after it, uncharged.
    told = await fates(db, job_id)
    assert sum(n for (status, _, attempts), n in told.items() if status == "retry_wait" and attempts == 0) == 3


@pytest.mark.parametrize(("key", "member"), [("\ud800\0x", "?x"), ("x" * 300, "x" * 255)], ids=["odd", "long"])
async def test_limiter_member_key_is_cleaned_and_truncated(mill: Mill, db: Database, key: str, member: str) -> None:
    mill.limiter("sites", "100/s")

    @mill.handler("calls", limit="sites", limit_by=lambda _: key)
    async def calls(item: Item) -> None:
        async with mill.limit("sites", key):
            pass

    job_id = await mill.submit_async("calls", range(2))
    await drain(mill, db=db)
    assert await fates(db, job_id) == {("done", None, 1): 2}
    assert await rows(db, "SELECT key FROM tidemill.limiter WHERE key <> ''") == [(member,)]


async def test_limiter_member_key_none_fails_item_with_type_error(mill: Mill, db: Database) -> None:
    mill.limiter("sites", "100/s")

    @mill.handler("calls", max_attempts=1)
    async def calls(item: Item) -> None:
        async with mill.limit("sites", None):  # type: ignore[arg-type]
            pass

    job_id = await mill.submit_async("calls", range(1))
    async with asyncio.timeout(10):
        await drain(mill, db=db)
    [(reason,)] = await rows(db, "SELECT error->>'reason' FROM tidemill.outcome WHERE job_id = %s", job_id)
    assert reason == "TypeError: the key of a limiter's member must be a string"

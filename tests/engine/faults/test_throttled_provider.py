"""Tests of a rate-limited provider over HTTP: no item is lost or charged, and the worker slows down."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support import Workers, add_job, assert_sound, closed, eventually, fates
from tidemill import Item, Mill, Retry
from tidemill.core.job import Job
from tidemill.core.policies import UNCHARGED_THROTTLES_MAX
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.jobs.reprocessing import reprocess_items
from tidemill.store import workers as store
from tidemill.store.database import Database
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.testing import drain

RATE, LATENCY_S, BURST = 60.0, 0.1, 6.0
WITHIN = 60.0


class Provider:
    """An HTTP server with a rate limit; it returns 429 and Retry-After above it."""

    def __init__(self) -> None:
        self.port = 0
        self.refused: list[bool] = []  # of every request, in order
        self._tokens, self._filled_at = BURST, time.monotonic()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send one request and close the connection."""
        request = await reader.readuntil(b"\r\n\r\n")
        taken = self._takes()
        self.refused.append(not taken)
        if taken:
            await asyncio.sleep(LATENCY_S)
        writer.write(self._response(request.split()[1]) if taken else self._refusal())
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def _takes(self) -> bool:
        now = time.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) * RATE)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _response(self, path: bytes) -> bytes:
        body = b'{"path": "%s"}' % path
        return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    def _refusal(self) -> bytes:
        return b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def serving() -> AsyncIterator[Provider]:
    provider = Provider()
    server = await asyncio.start_server(provider.answer, "127.0.0.1", 0)
    provider.port = server.sockets[0].getsockname()[1]
    try:
        yield provider
    finally:
        server.close()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with serving() as running:
        yield running


APP = """
    import httpx2

    client = httpx2.AsyncClient(timeout=30)

    @mill.handler("price", concurrency=40, max_attempts=1)
    async def ask(item):
        response = await client.get(f"http://127.0.0.1:{os.environ['PROVIDER_PORT']}/{item.seq}")
        response.raise_for_status()
        return response.json()
"""


async def test_worker_reduces_concurrency_when_throttled_and_reports_it(
    workers: Workers, db: Database, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_PORT", str(provider.port))
    workers.app(APP)
    job_id = await add_job(db, 300, kind="price")
    workers.start()

    async def look() -> dict[str, Any] | None:
        shown = await db.read(store.read_adaptive_state, "price")
        return shown[0] if shown and shown[0]["concurrency"] < 20 else None

    shown = await eventually(look, WITHIN)
    job = await closed(db, job_id, WITHIN)
    assert shown is not None
    assert (job.status, job.counts.done) == (JobStatus.COMPLETED, 300)
    assert await fates(db, job_id) == {("done", None, 1): 300}, "throttled calls were not charged as attempts"
    assert any(provider.refused), "calls were throttled at first"
    late = provider.refused[-100:]
    assert sum(late) < 0.5 * len(late), "fewer at the end: with forty at a time most would be throttled"
    check_shape(shown)
    await assert_sound(db)


def check_shape(shown: dict[str, Any]) -> None:
    """Return the adaptive state that the job page shows for a child."""
    assert (shown["child"], shown["provider"], shown["max_concurrency"]) == (0, "price", 40)
    assert shown["throttled"] > 0
    assert shown["gap_ms"] > 0
    assert shown["retry_spacing"] >= 1
    assert 0 <= shown["error_rate"] < 1
    assert shown["claim_size"] >= 1
    assert shown["item_ms"] is None or shown["item_ms"] > 0
    assert shown["lease_s"] >= 1
    assert shown["ingest"]["chunk_rows"] == shown["chunk_rows"] == 64
    assert shown["database"]["latency_ms"] > 0
    assert shown["database"]["pool_wait_ms"] >= 0
    assert set(shown["pressure"]) == {"cpu", "memory", "time", "room"}
    assert 0.1 <= shown["pressure"]["time"] <= 1
    assert shown["worker"]
    assert shown["silent_s"] < WITHIN


async def run(mill: Mill, kind: str, count: int) -> Job:
    job_id = await mill.submit_async(kind, range(count))
    await drain(mill)
    return await mill.job_async(job_id)


async def test_throttled_attempts_are_uncharged_up_to_maximum(mill: Mill, db: Database) -> None:
    attempts: list[int] = []

    @mill.handler("never", max_attempts=2)
    async def never(item: Item) -> None:
        attempts.append(item.attempt)
        raise Retry("429", throttled=True)

    job = await run(mill, "never", 1)
    assert attempts == [1] * (UNCHARGED_THROTTLES_MAX + 1) + [2]
    assert await fates(db, job.id) == {("failed", "throttled", 2): 1}
    await assert_sound(db)


async def test_reprocess_resets_uncharged_throttle_count(mill: Mill, db: Database) -> None:
    throttles: list[int] = []

    @mill.handler("never", max_attempts=1)
    async def never(item: Item) -> None:
        throttles.append(item.throttles)
        raise Retry("429", throttled=True)

    job = await run(mill, "never", 1)
    assert throttles == list(range(UNCHARGED_THROTTLES_MAX + 1))
    throttles.clear()
    await reprocess_items(db, job.id, ReprocessSelection(statuses=[ItemStatus.FAILED]))
    await drain(mill)
    assert throttles == list(range(UNCHARGED_THROTTLES_MAX + 1))


class TooManyRequests(Exception):
    status_code = 429


async def test_throttled_batch_is_retried_unsplit_and_uncharged(mill: Mill, db: Database) -> None:
    calls: list[int] = []

    @mill.batch_handler("whole", max_attempts=1)
    async def whole(items: list[Item]) -> None:
        calls.append(len(items))
        if len(calls) <= 3:
            raise TooManyRequests

    job = await run(mill, "whole", 20)
    assert calls == [20] * 4, "never split: no item caused it"
    assert await fates(db, job.id) == {("done", None, 1): 20}


async def test_throttled_items_of_batch_are_retried_and_others_are_done(mill: Mill, db: Database) -> None:
    @mill.batch_handler("some", max_attempts=1)
    async def some(items: list[Item]) -> list[Any]:
        return [Retry("429", throttled=True) if item.input % 2 and not item.throttles else None for item in items]

    job = await run(mill, "some", 10)
    assert job.counts.done == 10
    assert await fates(db, job.id) == {("done", None, 1): 10}


async def test_throttling_error_is_retried_even_if_declared_permanent(mill: Mill, db: Database) -> None:
    @mill.handler("mixed", max_attempts=1, permanent=(TooManyRequests,))
    async def mixed(item: Item) -> None:
        if not item.throttles:
            raise TooManyRequests

    assert (await run(mill, "mixed", 1)).counts.done == 1


async def test_malformed_retry_fails_item_as_invalid_result(mill: Mill, db: Database) -> None:
    class Own(Retry):
        def __init__(self) -> None:  # without the attributes of Retry
            self.reason = "mine"

    @mill.handler("odd", max_attempts=1)
    async def odd(item: Item) -> None:
        raise Own if item.input else Retry("later", after=float("nan"), throttled=True)

    job = await run(mill, "odd", 2)
    assert job.counts.failed == 2
    assert set(await fates(db, job.id)) == {(ItemStatus.FAILED.value, "invalid_result", 1)}

"""Tests of jobs whose source is a URL: it is downloaded first and then read like any file."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from support import assert_sound, eventually, job_of, rows
from support.loopback_server import Request, Server, ranged
from tidemill import Item, Mill
from tidemill.app.runtime_factory import make_engine_context
from tidemill.config import Settings
from tidemill.core.input_source import SourceReference
from tidemill.core.status import JobStatus
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.context import EngineContext
from tidemill.engine.source_fetcher import SourceFetcher
from tidemill.files.blobs import open_blob_store
from tidemill.store import ingestion, job_lifecycle
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async
from tidemill.testing import drain

LINES = b"".join(b'{"n": %d}\n' % n for n in range(20_000))
HALF = len(LINES) // 2
TAG = 'ETag: "v1"'


def half_then_silence(request: Request) -> None:
    if request.first:
        ranged(LINES, TAG)(request)
    else:
        request.answer("200 OK", TAG, f"Content-Length: {len(LINES)}", body=LINES[:HALF])
        request.stall()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(half_then_silence) as server:
        yield server


@pytest.fixture
def mill(settings: Settings, server: Server) -> Mill:
    mill = Mill(settings.model_copy(update={"remote_allow": [f"127.0.0.1:{server.port}"]}))

    @mill.handler("test")
    async def run(item: Item) -> None:
        """Do nothing."""

    return mill


async def submit_url(db: Database, url: str) -> UUID:
    source = SourceReference(url=url, blob=uuid4().hex, format="ndjson")
    async with db.transaction() as conn:
        return (await run_steps_async(conn, build_submission_steps(Submission("test", source=source), ())))[0]


@asynccontextmanager
async def reading(db: Database, mill: Mill) -> AsyncIterator[tuple[EngineContext, "asyncio.Task[float]"]]:
    """Start a download and wait until it has data."""
    book = SharedState.create(1)
    context = make_engine_context(db, mill.settings, mill.registry, worker="w1", shared_state=book)
    fetcher = SourceFetcher(context)

    async def fetch_once() -> float:
        delay = await fetcher.tick()
        await fetcher.wait_for_downloads()
        return delay

    tick = asyncio.create_task(fetch_once())
    folder = Path(mill.settings.blobs)

    async def has_begun() -> bool:
        return any(path.stat().st_size for path in folder.glob("*.part.tmp"))  # noqa: ASYNC240

    await eventually(has_begun)
    yield context, tick
    await tick
    book.close()


async def holder(db: Database, job_id: UUID) -> object:
    return (await rows(db, "SELECT lease_id FROM tidemill.ingest WHERE job_id = %s", job_id))[0][0]


async def test_url_source_is_downloaded_and_ingested(db: Database, mill: Mill, server: Server) -> None:
    server.answer = ranged(LINES)
    job_id = await submit_url(db, server.url())
    await drain(mill, db=db)
    job = await job_of(db, job_id)
    assert (job.status, job.counts.done) == (JobStatus.COMPLETED, 20_000)
    await assert_sound(db)


async def test_url_source_format_is_detected_after_download(db: Database, mill: Mill, server: Server) -> None:
    server.answer = ranged(gzip.compress("name;städt\nä;1\nö;2\n".encode("cp1252")))
    source = SourceReference(url=server.url("/get?id=7"), blob=uuid4().hex)
    async with db.transaction() as conn:
        job_id = (await run_steps_async(conn, build_submission_steps(Submission("test", source=source), ())))[0]
    await drain(mill, db=db)
    job = await job_of(db, job_id)
    assert (job.status, job.failure_reason) == (JobStatus.COMPLETED, None)
    inputs = await rows(db, "SELECT input FROM tidemill.item WHERE job_id = %s ORDER BY seq", job_id)
    assert inputs == [({"name": "ä", "städt": "1"},), ({"name": "ö", "städt": "2"},)]


async def test_url_source_already_downloaded_is_not_fetched_again(db: Database, mill: Mill, server: Server) -> None:
    stored = open_blob_store(mill.settings.blobs).put([b'{"n": 1}\n'])
    source = SourceReference(url=server.url(), blob=stored.id, format="ndjson")
    async with db.transaction() as conn:
        job_id = (await run_steps_async(conn, build_submission_steps(Submission("test", source=source), ())))[0]
    await drain(mill, db=db)
    assert (await job_of(db, job_id)).counts.done == 1
    assert server.requests == []


async def test_url_source_download_error_fails_job_with_reason(db: Database, mill: Mill, server: Server) -> None:
    server.answer = lambda request: request.answer("404 Not Found", "Content-Length: 0")
    missing, inside = (
        await submit_url(db, server.url("/x?k=secret")),
        await submit_url(db, "http://localhost/x?k=secret"),
    )
    await drain(mill, db=db)
    first, second = await job_of(db, missing), await job_of(db, inside)
    assert (first.status, second.status) == (JobStatus.FAILED, JobStatus.FAILED)
    where = server.url("/x")
    assert first.failure_reason == f"Cannot read the source: {where}: the server responded with 404 Not Found"
    assert second.failure_reason == (
        "Cannot read the source: http://localhost/x: localhost: the host is not on the public internet"
    )


@pytest.mark.parametrize("verb", [job_lifecycle.pause_job, job_lifecycle.cancel_job])
async def test_pause_or_cancel_ends_download_and_releases_lease(
    db: Database, mill: Mill, server: Server, verb: object
) -> None:
    job_id = await submit_url(db, server.url())
    async with reading(db, mill) as (_, tick):
        await db.run(verb, job_id)  # type: ignore[arg-type]
        async with asyncio.timeout(20):
            await tick
    assert await holder(db, job_id) is None
    job = await job_of(db, job_id)
    assert job.failure_reason is None


async def test_paused_download_resumes_where_it_stopped(db: Database, mill: Mill, server: Server) -> None:
    job_id = await submit_url(db, server.url())
    async with reading(db, mill):
        await db.run(job_lifecycle.pause_job, job_id)
    await db.run(job_lifecycle.resume_job, job_id)
    await drain(mill, db=db)
    assert (await job_of(db, job_id)).counts.done == 20_000
    assert [request.first > 0 for request in server.requests] == [False, True]
    await assert_sound(db)


async def test_shutdown_ends_download_and_releases_lease_promptly(db: Database, mill: Mill, server: Server) -> None:
    job_id = await submit_url(db, server.url())
    async with reading(db, mill) as (context, tick):
        started = time.monotonic()
        context.request_stop(60)
        await tick
        assert time.monotonic() - started < 15
    assert await holder(db, job_id) is None
    assert (await job_of(db, job_id)).status is JobStatus.PENDING


async def test_download_does_not_block_event_loop(db: Database, mill: Mill, server: Server) -> None:
    job_id = await submit_url(db, server.url())
    async with reading(db, mill) as (context, _):
        before = time.monotonic()
        for _ in range(20):
            await asyncio.sleep(0)
        assert time.monotonic() - before < 5
        context.request_stop(0)
    assert not (await job_of(db, job_id)).is_closed


async def test_download_extends_its_lease_and_lost_lease_does_not_fail_job(
    db: Database, mill: Mill, server: Server
) -> None:
    job_id, other = await submit_url(db, server.url()), uuid4()
    async with reading(db, mill) as (_, tick):
        was = await rows(db, "SELECT lease_until FROM tidemill.ingest WHERE job_id = %s", job_id)

        async def is_longer() -> bool:
            return await rows(db, "SELECT lease_until FROM tidemill.ingest WHERE job_id = %s", job_id) > was

        await eventually(is_longer)
        await rows(db, "UPDATE tidemill.ingest SET lease_id = %s WHERE job_id = %s", other, job_id)
        async with asyncio.timeout(20):
            await tick
    assert await holder(db, job_id) == other
    assert (await job_of(db, job_id)).failure_reason is None
    await db.run(ingestion.release_ingest_lease, job_id, other)

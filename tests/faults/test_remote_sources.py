"""A job whose source is a URL: fetched first, then read like any file; whoever waits for it does not wait in vain."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from connectors.servers import Request, Server, ranged
from support import assert_sound, eventually, job_of, rows
from tidemill import Item, Mill
from tidemill.app import make_context
from tidemill.config import Settings
from tidemill.connectors.blobs import open_blobs
from tidemill.domain.status import JobStatus
from tidemill.engine.context import Context
from tidemill.engine.ingest import Ingester
from tidemill.engine.logbook import Logbook
from tidemill.store import ingest, jobs
from tidemill.store.database import Database
from tidemill.store.submit import Submission, run_async, submission
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
        """Nothing."""

    return mill


async def submit_url(db: Database, url: str) -> UUID:
    source = {"url": url, "blob": uuid4().hex, "format": "ndjson"}
    async with db.transaction() as conn:
        return (await run_async(conn, submission(Submission("test", source=source), ())))[0]


@asynccontextmanager
async def reading(db: Database, mill: Mill) -> AsyncIterator[tuple[Context, "asyncio.Task[float]"]]:
    """An ingester in the midst of its download."""
    book = Logbook.create(1)
    context = make_context(db, mill.settings, mill.registry, worker="w1", book=book)
    tick = asyncio.create_task(Ingester(context, book.pages[0]).tick())
    folder = Path(mill.settings.blobs)

    async def has_begun() -> bool:
        return any(path.stat().st_size for path in folder.glob("*.part.tmp"))  # noqa: ASYNC240

    await eventually(has_begun)
    yield context, tick
    await tick
    book.close()


async def holder(db: Database, job_id: UUID) -> object:
    return (await rows(db, "SELECT lease_id FROM tidemill.ingest WHERE job_id = %s", job_id))[0][0]


async def test_the_file_of_a_url_is_fetched_and_read(db: Database, mill: Mill, server: Server) -> None:
    server.answer = ranged(LINES)
    job_id = await submit_url(db, server.url())
    await drain(mill, db=db)
    job = await job_of(db, job_id)
    assert (job.status, job.counts.done) == (JobStatus.COMPLETED, 20_000)
    await assert_sound(db)


async def test_what_was_not_said_of_a_file_is_found_out_when_it_is_here(
    db: Database, mill: Mill, server: Server
) -> None:
    server.answer = ranged(gzip.compress("name;städt\nä;1\nö;2\n".encode("cp1252")))
    source = {"url": server.url("/get?id=7"), "blob": uuid4().hex}
    async with db.transaction() as conn:
        job_id = (await run_async(conn, submission(Submission("test", source=source), ())))[0]
    await drain(mill, db=db)
    job = await job_of(db, job_id)
    assert (job.status, job.failure_reason) == (JobStatus.COMPLETED, None)
    inputs = await rows(db, "SELECT input FROM tidemill.item WHERE job_id = %s ORDER BY seq", job_id)
    assert inputs == [({"name": "ä", "städt": "1"},), ({"name": "ö", "städt": "2"},)]


async def test_a_file_that_is_here_is_not_fetched_again(db: Database, mill: Mill, server: Server) -> None:
    source = {"url": server.url(), "blob": open_blobs(mill.settings.blobs).put([b'{"n": 1}\n']).id, "format": "ndjson"}
    async with db.transaction() as conn:
        job_id = (await run_async(conn, submission(Submission("test", source=source), ())))[0]
    await drain(mill, db=db)
    assert (await job_of(db, job_id)).counts.done == 1
    assert server.requests == []


async def test_a_job_whose_file_cannot_be_fetched_fails_and_says_why(db: Database, mill: Mill, server: Server) -> None:
    server.answer = lambda request: request.answer("404 Not Found", "Content-Length: 0")
    missing, inside = (
        await submit_url(db, server.url("/x?k=secret")),
        await submit_url(db, "http://localhost/x?k=secret"),
    )
    await drain(mill, db=db)
    first, second = await job_of(db, missing), await job_of(db, inside)
    assert (first.status, second.status) == (JobStatus.FAILED, JobStatus.FAILED)
    where = server.url("/x")
    assert first.failure_reason == f"the source cannot be read: {where}: the server answered 404 Not Found"
    assert second.failure_reason == (
        "the source cannot be read: http://localhost/x: localhost: it is not on the public internet"
    )


@pytest.mark.parametrize("verb", [jobs.pause, jobs.cancel])
async def test_pausing_or_cancelling_a_job_ends_its_download_soon(
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


async def test_a_paused_download_goes_on_where_it_was(db: Database, mill: Mill, server: Server) -> None:
    job_id = await submit_url(db, server.url())
    async with reading(db, mill):
        await db.run(jobs.pause, job_id)
    await db.run(jobs.resume, job_id)
    await drain(mill, db=db)
    assert (await job_of(db, job_id)).counts.done == 20_000
    assert [request.first > 0 for request in server.requests] == [False, True]
    await assert_sound(db)


async def test_a_stopping_process_lets_go_of_its_download_at_once(db: Database, mill: Mill, server: Server) -> None:
    job_id = await submit_url(db, server.url())
    async with reading(db, mill) as (context, tick):
        started = time.monotonic()
        context.stop(60)
        await tick
        assert time.monotonic() - started < 15
    assert await holder(db, job_id) is None
    assert (await job_of(db, job_id)).status is JobStatus.PENDING


async def test_the_loop_goes_on_while_a_file_is_fetched(db: Database, mill: Mill, server: Server) -> None:
    job_id = await submit_url(db, server.url())
    async with reading(db, mill) as (context, _):
        before = time.monotonic()
        for _ in range(20):
            await asyncio.sleep(0)
        assert time.monotonic() - before < 5
        context.stop(0)
    assert not (await job_of(db, job_id)).is_closed


async def test_a_download_keeps_its_lease_and_whoever_lost_it_fails_nothing(
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
    await db.run(ingest.release, job_id, other)

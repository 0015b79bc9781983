"""Helpers for tests of time slices."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import UUID

from support import eventually, job_of
from tidemill.app.worker import Worker
from tidemill.config import Settings
from tidemill.core.errors import Busy
from tidemill.core.input_source import SourceReference
from tidemill.core.job import TimeSliceResult
from tidemill.files.blobs import open_blob_store
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async

Start = Callable[..., Awaitable[Worker]]
PARENT = "the parent"  # the application name of its sessions; children have another one
MANY = 500

NAP = """
    @mill.handler("test", concurrency=5)
    async def run(item):
        await asyncio.sleep(0.01)
        return item.input["n"]
"""


async def add_file(db: Database, settings: Settings, n: int, kind: str = "test") -> UUID:
    """Submit a job whose items are the lines of a stored file."""
    blob = open_blob_store(settings.blobs).put(b'{"n": %d}\n' % i for i in range(n))
    async with db.transaction() as conn:
        source = SourceReference(blob=blob.id, format="ndjson")
        return (await run_steps_async(conn, build_submission_steps(Submission(kind, source=source), ())))[0]


async def ready(worker: Worker) -> None:
    """Wait until every child is ready for a slice."""

    async def look() -> bool:
        hands = worker._supervisor.children.values()
        return bool(hands) and all(hand.can_start_slice for hand in hands)

    await eventually(look)


async def kick(worker: Worker, job_id: UUID, seconds: float, kind: str = "test") -> TimeSliceResult:
    """Run one slice as soon as a child is ready; a new child needs some time to start."""
    for _ in range(MANY):
        with suppress(Busy):
            return await worker.kickoff(job_id, kind, seconds)
    raise AssertionError("no child is ever free")


async def finish_in_slices(worker: Worker, job_id: UUID, seconds: float, kind: str = "test") -> list[TimeSliceResult]:
    """Run slices until the job is drained."""
    slices: list[TimeSliceResult] = []
    while not slices or not slices[-1].is_drained:
        assert len(slices) < MANY, slices[-3:]
        slices.append(await kick(worker, job_id, seconds, kind))
    return slices


def begin(worker: Worker, job_id: UUID, seconds: float, kind: str = "test") -> "asyncio.Task[TimeSliceResult]":
    """Run a slice in the background."""
    return asyncio.create_task(kick(worker, job_id, seconds, kind))


async def in_hand(db: Database, job_id: UUID) -> None:
    """Wait until some of the job's items are being processed."""

    async def look() -> int:
        return (await job_of(db, job_id)).counts.processing

    await eventually(look)


async def some_done(db: Database, job_id: UUID) -> None:
    """Wait until some of the job's items are done, and not all."""

    async def look() -> bool:
        counts = (await job_of(db, job_id)).counts
        return 0 < counts.done < counts.total

    await eventually(look)


def children(worker: Worker) -> list[int]:
    """Return the PIDs of the children."""
    return [hand.process.pid for hand in worker._supervisor.children.values()]


def items_in_hand(worker: Worker) -> int:
    """Return the shared state of the children."""
    books = [hand.shared_state for hand in worker._supervisor.children.values()]
    return sum(page.running_item_count for book in books for page in book.lanes)

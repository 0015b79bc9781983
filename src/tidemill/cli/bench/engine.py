"""The engine's side: rows in, rows through, and how soon a job starts."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self
from uuid import UUID

from tidemill.app import make_context
from tidemill.cli.bench.mill import NOOP, STAMP, mill
from tidemill.cli.bench.process import NOTHING
from tidemill.cli.bench.rows import Rows, inputs
from tidemill.cli.bench.worker import BenchWorker
from tidemill.config import Settings
from tidemill.connectors.blobs import open_blobs
from tidemill.domain.errors import TidemillError
from tidemill.engine.ingest import Ingester
from tidemill.engine.logbook import Logbook
from tidemill.operations.submit import submit
from tidemill.store import bench, jobs
from tidemill.store.database import Database
from tidemill.store.submit import Submission

POLL_S = 0.05
WARM_UP = 400
PATIENCE_S = 60.0
STALL_S = 1_800.0
IDLE_S = 0.05  # between two starts, for everybody to fall asleep again


class Engine:
    """Makes jobs in a database and has them processed by workers that it starts. ``jobs`` are those it made."""

    def __init__(self, db: Database, settings: Settings, environment: Mapping[str, str] = NOTHING) -> None:
        self.jobs: list[UUID] = []
        self._db = db
        self._settings = settings
        self._environment = environment  # of workers
        self._blobs = open_blobs(settings.blobs)

    def __enter__(self) -> Self:
        self._book = Logbook.create(1)
        context = make_context(self._db, self._settings, mill.registry, worker="bench", book=self._book)
        self._ingester = Ingester(context, self._book.pages[0])
        return self

    def __exit__(self, *_: object) -> None:
        self._book.close()

    async def submit_inline(self, n: int) -> tuple[UUID, float]:
        """A job whose rows come with the submission, left paused; and the seconds until it was durable."""
        started = time.monotonic()
        job_id = await self._submit(NOOP, inputs(n))
        seconds = time.monotonic() - started
        await self._db.run(jobs.pause, job_id)
        return job_id, seconds

    async def submit_paused(self, kind: str, n: int) -> UUID:
        """A job of another kind, left paused."""
        job_id = await self._submit(kind, range(n))
        await self._db.run(jobs.pause, job_id)
        return job_id

    async def ingest_file(self, rows: Rows) -> tuple[UUID, float]:
        """A job whose rows are read from a stored file, left paused; and the seconds until all were durable."""
        blob = await asyncio.to_thread(self._blobs.put_file, rows.ndjson)
        started = time.monotonic()
        source = {"blob": blob.id, "format": "ndjson", "name": rows.ndjson.name}
        job_id, _ = await submit(self._db, Submission(NOOP, source=source))
        self.jobs.append(job_id)
        while not (await self._db.run(jobs.get, job_id)).ingest_complete:
            await self._ingester.tick()
        seconds = time.monotonic() - started
        await self._db.run(jobs.pause, job_id)
        self._blobs.remove(blob.id)
        return job_id, seconds

    @asynccontextmanager
    async def worker(self, processes: int) -> AsyncIterator[BenchWorker]:
        """A worker that is ready: every child has run items and is idle again."""
        async with BenchWorker(self._settings, processes, self._environment) as worker:
            seen: set[int] = set()
            while len(seen) < processes:
                job_id = await self._submit(STAMP, range(WARM_UP))
                await self._closed(job_id, worker, within=PATIENCE_S)
                seen |= {result["pid"] for result in await self._db.run(bench.results, job_id)}
            yield worker

    async def process(self, job_id: UUID, n: int, worker: BenchWorker) -> float:
        """Let a paused job of ``n`` items run; the seconds from its first claim to its close."""
        await self._db.run(jobs.resume, job_id)
        await self._closed(job_id, worker, within=STALL_S)
        counts = (await self._db.run(jobs.get, job_id)).counts
        if counts.done != n:
            raise TidemillError(f"of {n} items only {counts.done} were done: what was measured is not the work")
        return await self._db.run(bench.turned_seconds, job_id)

    async def process_all(self, job_ids: Sequence[UUID], n: int, worker: BenchWorker) -> float:
        """Let paused jobs of ``n`` items each run; the seconds from the first word of it to the last close."""
        started = time.monotonic()
        for job_id in job_ids:
            await self._db.run(jobs.resume, job_id)
        for job_id in job_ids:
            await self._closed(job_id, worker, within=STALL_S)
        seconds = time.monotonic() - started
        done = [(await self._db.run(jobs.get, job_id)).counts.done for job_id in job_ids]
        if done != [n] * len(job_ids):
            raise TidemillError(f"of {n} items each only {done} were done: what was measured is not the work")
        return seconds

    async def start_latency(self, worker: BenchWorker) -> tuple[float, float]:
        """Milliseconds to the start of a handler on an idle system: from the call of submit, from its return."""
        await asyncio.sleep(IDLE_S)
        called = time.monotonic_ns()
        job_id = await self._submit(STAMP, [None])
        returned = time.monotonic_ns()
        await self._closed(job_id, worker, within=PATIENCE_S)
        [result] = await self._db.run(bench.results, job_id)
        return (result["ns"] - called) / 1e6, (result["ns"] - returned) / 1e6

    async def _submit(self, kind: str, values: Iterable[Any]) -> UUID:
        async with self._db.transaction(bounded=False) as conn:
            job_id = await mill.submit_async(kind, values, connection=conn)
        self.jobs.append(job_id)
        return job_id

    async def _closed(self, job_id: UUID, worker: BenchWorker, *, within: float) -> None:
        deadline = time.monotonic() + within
        while not await self._db.run(bench.is_closed, job_id):
            worker.look()
            if time.monotonic() > deadline:
                raise TidemillError(f"a job of the benchmark was not closed within {within:g} s")
            await asyncio.sleep(POLL_S)

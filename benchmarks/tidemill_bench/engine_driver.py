"""Submit jobs, run them with workers, and measure ingest, processing and start latency."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from tidemill.app.runtime_factory import make_engine_context
from tidemill.config import Settings
from tidemill.core.errors import TidemillError
from tidemill.core.input_source import SourceReference
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.ingester import Ingester
from tidemill.files.blobs import open_blob_store
from tidemill.jobs.submission import submit_job
from tidemill.store import job_lifecycle, job_records
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill_bench import database
from tidemill_bench.mill import NOOP_KIND, STAMP_KIND, mill
from tidemill_bench.processes import NO_ENVIRONMENT, BenchWorker
from tidemill_bench.sample_rows import repeat_inputs

JOB_POLL_S = 0.05
WARM_UP_ITEMS = 400
SHORT_JOB_TIMEOUT_S = 60.0
LONG_JOB_TIMEOUT_S = 1_800.0
IDLE_BEFORE_START_S = 0.05  # pause between two starts, after which the worker is idle again


class EngineDriver:
    """Submits jobs and starts the workers that process them. ``jobs`` are the submitted jobs."""

    def __init__(self, db: Database, settings: Settings, environment: Mapping[str, str] = NO_ENVIRONMENT) -> None:
        self.jobs: list[UUID] = []
        self._db = db
        self._settings = settings
        self._environment = environment  # extra variables for workers
        self._blobs = open_blob_store(settings.blobs)

    def __enter__(self) -> Self:
        self._book = SharedState.create(1)
        context = make_engine_context(self._db, self._settings, mill.registry, worker="bench", shared_state=self._book)
        self._ingester = Ingester(context, self._book.lanes[0])
        return self

    def __exit__(self, *_: object) -> None:
        self._book.close()

    async def submit_inline(self, n: int) -> tuple[UUID, float]:
        """Submit a job with inline rows and pause it; return its id, and the seconds until it was durable."""
        started = time.monotonic()
        job_id = await self._submit_job(NOOP_KIND, repeat_inputs(n))
        seconds = time.monotonic() - started
        await self._db.run(job_lifecycle.pause_job, job_id)
        return job_id, seconds

    async def submit_paused(self, kind: str, n: int) -> UUID:
        """Submit a paused job of any kind; return its id."""
        job_id = await self._submit_job(kind, range(n))
        await self._db.run(job_lifecycle.pause_job, job_id)
        return job_id

    async def ingest_file(self, ndjson: Path) -> tuple[UUID, float]:
        """Ingest a job from a stored file and pause it; return its id, and the seconds until all rows were durable."""
        blob = await asyncio.to_thread(self._blobs.put_file, ndjson)
        started = time.monotonic()
        source = SourceReference(blob=blob.id, format="ndjson", name=ndjson.name)
        job_id, _ = await submit_job(self._db, Submission(NOOP_KIND, source=source))
        self.jobs.append(job_id)
        while not (await self._db.read(job_records.get_job, job_id)).ingest_complete:
            await self._ingester.tick()
        seconds = time.monotonic() - started
        await self._db.run(job_lifecycle.pause_job, job_id)
        self._blobs.remove(blob.id)
        return job_id, seconds

    @asynccontextmanager
    async def start_warm_worker(self, processes: int) -> AsyncIterator[BenchWorker]:
        """Start a worker; yield it when every child process has run items and is idle again."""
        async with BenchWorker(self._settings, processes, self._environment) as worker:
            seen: set[int] = set()
            while len(seen) < processes:
                job_id = await self._submit_job(STAMP_KIND, range(WARM_UP_ITEMS))
                await self._wait_until_closed(job_id, worker, within=SHORT_JOB_TIMEOUT_S)
                seen |= {result["pid"] for result in await self._db.run(database.read_job_results, job_id)}
            yield worker

    async def process_job(self, job_id: UUID, n: int, worker: BenchWorker) -> float:
        """Resume a paused job of ``n`` items; return the seconds from its first claim to its close."""
        await self._db.run(job_lifecycle.resume_job, job_id)
        await self._wait_until_closed(job_id, worker, within=LONG_JOB_TIMEOUT_S)
        counts = (await self._db.read(job_records.get_job, job_id)).counts
        if counts.done != n:
            raise TidemillError(f"Invalid measurement: {counts.done} of {n} items were done")
        return await self._db.run(database.read_processing_seconds, job_id)

    async def process_jobs(self, job_ids: Sequence[UUID], n: int, worker: BenchWorker) -> float:
        """Resume paused jobs of ``n`` items each; return the seconds from the first resume to the last close."""
        started = time.monotonic()
        for job_id in job_ids:
            await self._db.run(job_lifecycle.resume_job, job_id)
        for job_id in job_ids:
            await self._wait_until_closed(job_id, worker, within=LONG_JOB_TIMEOUT_S)
        seconds = time.monotonic() - started
        done = [(await self._db.read(job_records.get_job, job_id)).counts.done for job_id in job_ids]
        if done != [n] * len(job_ids):
            raise TidemillError(f"Invalid measurement: {done} instead of {n} items per job were done")
        return seconds

    async def measure_start_latency(self, worker: BenchWorker) -> tuple[float, float]:
        """Return the milliseconds from the call of submit, and from its return, to the start of the handler."""
        await asyncio.sleep(IDLE_BEFORE_START_S)
        called = time.monotonic_ns()
        job_id = await self._submit_job(STAMP_KIND, [None])
        returned = time.monotonic_ns()
        await self._wait_until_closed(job_id, worker, within=SHORT_JOB_TIMEOUT_S)
        [result] = await self._db.run(database.read_job_results, job_id)
        return (result["ns"] - called) / 1e6, (result["ns"] - returned) / 1e6

    async def _submit_job(self, kind: str, values: Iterable[Any]) -> UUID:
        async with self._db.transaction(bounded=False) as conn:
            job_id = await mill.submit_async(kind, values, connection=conn)
        self.jobs.append(job_id)
        return job_id

    async def _wait_until_closed(self, job_id: UUID, worker: BenchWorker, *, within: float) -> None:
        deadline = time.monotonic() + within
        while not await self._db.run(database.is_job_closed, job_id):
            worker.sample_memory()
            if time.monotonic() > deadline:
                raise TidemillError(f"A job of the benchmark did not close within {within:g} s")
            await asyncio.sleep(JOB_POLL_S)

"""What the measurements of the load benchmark share: the database, their users, and helpers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from tidemill.config import Settings
from tidemill.core.errors import TidemillError
from tidemill.store import job_lifecycle, job_records
from tidemill.store.database import Database
from tidemill_bench import database
from tidemill_bench.claim_recorder import CLAIM_FOLDER_VARIABLE
from tidemill_bench.mill import mill
from tidemill_bench.plans import LoadBenchPlan
from tidemill_bench.processes import BenchWorker

PROGRESS_INTERVAL_S = 0.2
WORKERS_START_TIMEOUT_S = 300.0
DRAIN_TIMEOUT_S = 7_200.0

Points = list[tuple[float, float]]


@dataclass
class LoadScene:
    """The database, two users, and the figures and series of points that the measurements record."""

    plan: LoadBenchPlan
    db: Database
    settings: Settings
    owner_ids: Sequence[int]
    keys: Sequence[str]  # API keys of the first user
    is_own: bool  # whether the database is the benchmark's own
    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, dict[str, Points]] = field(default_factory=dict)

    @asynccontextmanager
    async def start_workers(
        self, count: int = 1, processes: int = 2, environment: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[list[BenchWorker], Path]]:
        """Start workers; yield them, and the folder with their claims, when each child polls for work."""
        folder = self.settings.home / f"claims-{time.monotonic_ns()}"
        folder.mkdir()
        variables = {CLAIM_FOLDER_VARIABLE: str(folder)} | dict(environment or {})
        async with AsyncExitStack() as stack:
            workers = [
                await stack.enter_async_context(BenchWorker(self.settings, processes, variables)) for _ in range(count)
            ]
            deadline = time.monotonic() + WORKERS_START_TIMEOUT_S
            while len(list(folder.iterdir())) < count * processes:
                if time.monotonic() > deadline:
                    raise TidemillError(f"The workers did not start within {WORKERS_START_TIMEOUT_S:g} s")
                sample_memory(workers)
                await asyncio.sleep(PROGRESS_INTERVAL_S)
            yield workers, folder

    async def submit_paused(self, kind: str, n: int, *, owner: int = 0) -> UUID:
        """Submit a paused job of a user; return its id."""
        job_id = await self.submit(kind, range(n), owner=owner)
        await self.db.run(job_lifecycle.pause_job, job_id)
        return job_id

    async def submit(self, kind: str, values: Any, *, owner: int = 0) -> UUID:
        async with self.db.transaction(bounded=False) as conn:
            return await mill.submit_async(kind, values, owner_id=self.owner_ids[owner], connection=conn)

    async def resume(self, job_id: UUID) -> float:
        """Resume a job; return the time by the monotonic clock."""
        await self.db.run(job_lifecycle.resume_job, job_id)
        return time.monotonic()

    async def drain(
        self, job_id: UUID, workers: Sequence[BenchWorker], observe: Callable[[], None] = lambda: None
    ) -> Points:
        """Wait until a job is closed; return the numbers of settled items by the time in seconds."""
        points, started = [(0.0, 0.0)], time.monotonic()
        while not await self.db.run(database.is_job_closed, job_id):
            points.append((time.monotonic() - started, await self.count_settled(job_id)))
            sample_memory(workers)
            observe()
            if time.monotonic() - started > DRAIN_TIMEOUT_S:
                raise TidemillError(f"A job of the benchmark did not close within {DRAIN_TIMEOUT_S:g} s")
            await asyncio.sleep(PROGRESS_INTERVAL_S)
        return [*points, (time.monotonic() - started, await self.count_settled(job_id))]

    async def count_settled(self, job_id: UUID) -> float:
        return float((await self.db.read(job_records.get_job, job_id)).counts.settled)

    async def delete_jobs(self, *job_ids: UUID) -> None:
        """Delete jobs with all their rows, unless the whole database is removed at the end."""
        if not self.is_own:
            await database.remove_jobs(self.db, job_ids)


def sample_memory(workers: Sequence[BenchWorker]) -> None:
    """Record the memory of the workers; raise TidemillError if one has exited."""
    for worker in workers:
        worker.sample_memory()


def compute_rates(points: Points, parts: int = 100) -> Points:
    """Return the items per second in each of ``parts`` equal parts of the time, at the end of the part."""
    total_s = points[-1][0]
    edges = [total_s * part / parts for part in range(parts + 1)]
    counts = [interpolate(points, edge) for edge in edges]
    return [
        (after, (high - low) / (after - before))
        for (before, low), (after, high) in pairwise(zip(edges, counts, strict=True))
    ]


def interpolate(points: Points, at: float) -> float:
    """Return the value at a time between two points."""
    for (before, low), (after, high) in pairwise(points):
        if at <= after:
            return low + (high - low) * (at - before) / (after - before) if after > before else high
    return points[-1][1]


def compute_tenth_rates(points: Points) -> tuple[float, float]:
    """Return the items per second in the first tenth and in the last tenth of the items."""
    total = points[-1][1]
    inverted = [(count, at) for at, count in points]
    first, last = interpolate(inverted, total / 10), points[-1][0] - interpolate(inverted, total * 0.9)
    return total / 10 / max(first, 1e-9), total / 10 / max(last, 1e-9)

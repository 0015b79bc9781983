"""The soak: a mix of small jobs, imports and exports for a long time, while resources of all processes are sampled."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any
from uuid import UUID

import psutil

from tidemill.core.errors import TidemillError
from tidemill.store import job_records
from tidemill.store.database import Database
from tidemill_bench import database, import_files
from tidemill_bench.baselines import BareImportTables
from tidemill_bench.http_client import RawHttpClient, drain_stream
from tidemill_bench.load_scene import LoadScene, Points
from tidemill_bench.mill import NOOP_KIND
from tidemill_bench.neighbour import RESOURCES, TARGET_RESOURCE, write_config
from tidemill_bench.processes import BYTES_PER_MB, BenchServer, BenchWorker, read_rss_mb

SOAK_RESOURCES = {TARGET_RESOURCE: RESOURCES[TARGET_RESOURCE]}  # the service checks that the tables exist
SOAK_IMPORT_ROWS = 2_000
SMALL_JOB_ITEMS = 20
SMALL_JOB_EVERY_S, IMPORT_EVERY_S, STREAM_EVERY_S, EXPORT_JOB_EVERY_S = 0.5, 5.0, 5.0, 10.0
CLOSE_TIMEOUT_S, CLOSE_POLL_S = 300.0, 0.5
FLAT_PREFIXES = ("rss_mb_", "fds_", "connections")  # dead tuples rise and fall with each vacuum


async def measure_soak(scene: LoadScene) -> None:
    """Run the mix of work, and record the growth of each resource in the second half."""
    plan, folder = scene.plan, scene.settings.home
    settings = scene.settings.model_copy(update={"config": write_config(folder, SOAK_RESOURCES)})
    async with AsyncExitStack() as stack:
        stack.enter_context(BareImportTables(scene.db.url))
        [worker], _ = await stack.enter_async_context(scene.start_workers())
        server = await stack.enter_async_context(BenchServer(settings, folder / "soak.log"))
        sample = await asyncio.to_thread(import_files.write_users_file, folder, SOAK_IMPORT_ROWS)
        mix = SoakMix(server.place, scene.keys[0], sample.file.read_bytes())
        sampler = ResourceSampler(scene, worker, server)
        running = asyncio.create_task(mix.run(plan.soak_s))
        while not running.done():
            await sampler.take_sample()
            await asyncio.wait([running], timeout=plan.soak_sample_s)
        await running
        await mix.check_all_closed(scene.db)
    scene.series["soak"] = dict(sampler.series)
    scene.figures |= summarize_samples(sampler.series)
    scene.figures |= {f"soak_{name}": float(count) for name, count in mix.finished.items()}
    await scene.delete_jobs(*mix.jobs)


def summarize_samples(series: Mapping[str, Points]) -> dict[str, float]:
    """Return the last value and the growth of each series, and the largest growth of those that must be flat."""
    found: dict[str, float] = {}
    for name, points in series.items():
        found[f"soak_{name}"] = points[-1][1]
        found[f"soak_{name}_growth_percent"] = compute_growth_percent(points)
    found["soak_growth_percent"] = max(
        value
        for name, value in found.items()
        if name.endswith("_growth_percent") and name.removeprefix("soak_").startswith(FLAT_PREFIXES)
    )
    return found


def compute_growth_percent(points: Points) -> float:
    """Return the growth over the second half by its linear trend, in percent of its mean."""
    half = [(at, value) for at, value in points if at >= points[-1][0] / 2]
    mean_at, mean = (sum(column) / len(half) for column in zip(*half, strict=True))
    spread = sum((at - mean_at) ** 2 for at, _ in half)
    if not spread or not mean:
        return 0.0
    slope = sum((at - mean_at) * (value - mean) for at, value in half) / spread
    return float(100 * slope * (half[-1][0] - half[0][0]) / mean)


class ResourceSampler:
    """Records memory and open files of each process, connections and dead rows, by the time in seconds."""

    def __init__(self, scene: LoadScene, worker: BenchWorker, server: BenchServer) -> None:
        self.series: defaultdict[str, Points] = defaultdict(list)
        self._scene = scene
        self._worker = worker
        self._server = server
        self._started = time.monotonic()

    async def take_sample(self) -> None:
        worker = self._worker.process
        children = sorted(worker.children(), key=lambda child: child.pid)[:2]
        processes = {"service": self._server.process, "worker": worker}
        processes |= {f"child_{number}": child for number, child in enumerate(children, 1)}
        for name, process in processes.items():
            self._add(f"rss_mb_{name}", read_rss_mb(process))
            self._add(f"fds_{name}", process.num_fds())
        db = self._scene.db
        self._add("connections", await db.run(database.count_connections))
        self._add("dead_tuples", await db.run(database.count_dead_tuples))
        postgres_mb = read_private_mb(await db.run(database.read_backend_pid))
        if postgres_mb is not None:
            self._add("postgres_private_mb", postgres_mb)

    def _add(self, name: str, value: float) -> None:
        self.series[name].append((time.monotonic() - self._started, value))


def read_private_mb(backend_pid: int) -> float | None:
    """Return the private memory of all processes of a local PostgreSQL server; None if it is elsewhere."""
    try:
        server = psutil.Process(backend_pid).parent()
        if server is None or "postgres" not in server.name():
            return None
        return sum(_read_private_bytes(process) for process in [server, *server.children()]) / BYTES_PER_MB
    except psutil.Error:
        return None


def _read_private_bytes(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        memory = process.memory_info()
        return int(memory.rss - getattr(memory, "shared", 0))
    return 0


class SoakMix:
    """Submits small jobs, imports and exports at fixed intervals. ``finished`` counts them."""

    def __init__(self, address: tuple[str, int], key: str, content: bytes) -> None:
        self.finished: defaultdict[str, int] = defaultdict(int)
        self.jobs: list[UUID] = []
        self._address = address
        self._key = key
        self._content = content

    async def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        actions: Sequence[tuple[float, Callable[[], Awaitable[None]]]] = (
            (SMALL_JOB_EVERY_S, self._submit_small_job),
            (IMPORT_EVERY_S, self._import_file),
            (STREAM_EVERY_S, self._stream_table),
            (EXPORT_JOB_EVERY_S, self._submit_export),
        )
        async with asyncio.TaskGroup() as group:
            for interval_s, action in actions:
                group.create_task(_repeat_until(deadline, interval_s, action))

    async def check_all_closed(self, db: Database) -> None:
        """Wait until all jobs are closed; raise TidemillError if one has failed.

        It reads the database, because thousands of requests at once would exceed the rate limit of the user.
        """
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            for job_id in self.jobs:
                job = await db.read(job_records.get_job, job_id)
                while not job.is_closed:
                    await asyncio.sleep(CLOSE_POLL_S)
                    job = await db.read(job_records.get_job, job_id)
                if not job.status.startswith("completed"):
                    raise TidemillError(f"Invalid measurement: job {job_id} of the soak is {job.status}")

    async def _submit_small_job(self) -> None:
        job = {"kind": NOOP_KIND, "inputs": list(range(SMALL_JOB_ITEMS))}
        await self._submit("small_jobs", "/v1/jobs", job, "id")

    async def _submit_export(self) -> None:
        await self._submit("export_jobs", "/v1/exports", {"resource": TARGET_RESOURCE, "format": "csv"}, "job_id")

    async def _submit(self, name: str, path: str, body: Any, id_field: str) -> None:
        async with RawHttpClient(self._address, self._key) as client:
            self.jobs.append(UUID((await client.post(path, body)).checked_json[id_field]))
        self.finished[name] += 1

    async def _import_file(self) -> None:
        path = f"/v1/imports?resource={TARGET_RESOURCE}&mode=upsert&filename=users.csv"
        async with RawHttpClient(self._address, self._key) as client:
            answer = await client.send(path, "text/csv", len(self._content), [self._content])
        self.jobs.append(UUID(answer.checked_json["job_id"]))
        self.finished["imports"] += 1

    async def _stream_table(self) -> None:
        path = f"/v1/exports?resource={TARGET_RESOURCE}&format=csv"
        await asyncio.to_thread(drain_stream, self._address, path, self._key)
        self.finished["streams"] += 1


async def _repeat_until(deadline: float, interval_s: float, action: Callable[[], Awaitable[None]]) -> None:
    while time.monotonic() < deadline:
        pause = asyncio.create_task(asyncio.sleep(interval_s))
        await action()
        await pause

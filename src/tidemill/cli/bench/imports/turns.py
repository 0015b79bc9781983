"""Bare COPY and import in turns."""

import asyncio
import os
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from tidemill.app import make_importing
from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.imports import files
from tidemill.cli.bench.imports.files import Sample
from tidemill.cli.bench.imports.plan import Plan
from tidemill.cli.bench.worker import BenchWorker
from tidemill.cli.views import errors
from tidemill.config import Settings
from tidemill.connectors.blobs import open_blobs
from tidemill.domain.errors import TidemillError
from tidemill.domain.importing import KIND, ImportRequest
from tidemill.domain.resource import Field, Resource
from tidemill.operations.resources import Resources
from tidemill.store import bench, bench_import, jobs
from tidemill.store.bench_import import BareTable
from tidemill.store.database import Database
from tidemill.store.submit import Submission

POLL_S = 0.05
EMAIL = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
SLUG = r"[a-z0-9]+(?:-[a-z0-9]+)*"
PATTERNS = {"email": EMAIL, "slug": SLUG}

Samples = defaultdict[str, list[float]]


class Turns:
    """Takes every sample of a plan."""

    def __init__(self, plan: Plan, db: Database, settings: Settings, engine: Engine, bare: BareTable) -> None:
        self.samples: Samples = defaultdict(list)
        self._plan = plan
        self._db = db
        self._settings = settings
        self._engine = engine
        self._bare = bare
        self._blobs = open_blobs(settings.blobs)
        self._importing = make_importing(db, settings)

    async def take(self) -> Samples:
        plan, folder = self._plan, self._settings.home
        self._note("load_average_before", os.getloadavg()[0])
        with errors.status("making files") as status:
            users = await asyncio.to_thread(files.users, folder, plan.users)
            articles = await asyncio.to_thread(files.articles, folder, plan.articles)
            for number in range(plan.rounds):
                status.update(f"round {number + 1} of {plan.rounds}: {plan.users:,} users")
                await self._turn("users", "", users)
                status.update(f"round {number + 1} of {plan.rounds}: {plan.articles:,} articles")
                await self._turn("articles", "ndjson_", articles)
            status.update(f"{plan.pairs:,} rows, all good and all bad")
            await self._pairs(folder)
        return self.samples

    async def _turn(self, table: str, name: str, sample: Sample) -> None:
        """An import between two bare ones."""
        await self._copy(table, name, sample)
        await self._import(table, name, sample)
        await self._copy(table, name, sample)

    async def _pairs(self, folder: Path) -> None:
        n = self._plan.pairs
        samples = {
            word: await asyncio.to_thread(files.users, folder, n, is_bad=is_bad)
            for word, is_bad in (("good", _never), ("bad", _always))
        }
        for _ in range(self._plan.rounds):
            for word, sample in samples.items():
                await self._import("users", f"all_{word}_", sample)

    async def _copy(self, table: str, name: str, sample: Sample) -> None:
        await asyncio.to_thread(self._bare.empty, table, files.authors())
        seconds = await asyncio.to_thread(self._bare.copy, table, sample.pieces())
        self._note(f"{name}copy_s", seconds)

    async def _import(self, table: str, name: str, sample: Sample) -> None:
        """From the moment a stored file is accepted until its job is closed."""
        await asyncio.to_thread(self._bare.empty, table, files.authors())
        resource = _with_patterns(await Resources({}).find(self._db, f"tidemill_bench.{table}", any_table=True))
        blob = await asyncio.to_thread(self._blobs.put_file, sample.file)
        async with self._engine.worker(self._plan.processes) as worker:
            wal, cpu, started = await self._db.run(bench.wal_bytes), worker.cpu_seconds(), time.monotonic()
            look = await self._importing.look(blob.id, name=sample.file.name, given={})
            plan = await self._importing.plan(look, resource, ImportRequest())
            job_id, _ = await self._importing.submit(Submission(KIND), blob, look, plan, {}, sample.file.name)
            self._engine.jobs.append(job_id)
            await self._closed(job_id, worker, name, started)
            self._note(f"{name}import_s", time.monotonic() - started)
            self._note(f"{name}import_cpu_s", worker.cpu_seconds() - cpu)
            self._note(f"{name}import_wal_mb", (await self._db.run(bench.wal_bytes) - wal) / 1e6)
        self._note("import_rss_mb", worker.child_rss_mb)
        await self._check(job_id, sample, table)

    async def _closed(self, job_id: UUID, worker: BenchWorker, name: str, started: float) -> None:
        first = None
        while not await self._db.run(bench.is_closed, job_id):
            worker.look()
            if first is None and (await self._db.run(jobs.get, job_id)).counts.settled:
                first = time.monotonic() - started
                self._note(f"{name}first_row_s", first)
            await asyncio.sleep(POLL_S)

    async def _check(self, job_id: UUID, sample: Sample, table: str) -> None:
        counts = (await self._db.run(jobs.get, job_id)).counts
        there = await self._db.run(bench_import.count, table)
        if (counts.failed, there) != (sample.bad, sample.rows - sample.bad):
            raise TidemillError(f"{counts.failed} rows failed and {there} are there: what was measured is not the work")

    def _note(self, name: str, value: float) -> None:
        self.samples[name].append(value)


def _always(_: int) -> bool:
    return True


def _never(_: int) -> bool:
    return False


def _with_patterns(resource: Resource) -> Resource:
    """With the rules that a product has and a table has not."""
    return replace(resource, fields=tuple(_stricter(field) for field in resource.fields))


def _stricter(field: Field) -> Field:
    if field.name in PATTERNS:
        return replace(field, pattern=PATTERNS[field.name], normalize=("trim", "lower"), max_length=254)
    return replace(field, min_length=1, max_length=200) if field.name in ("name", "title") else field

"""Distributions of many small files to an S3 server of this machine, in turns with the bare client."""

import asyncio
import time
from collections import defaultdict
from typing import Any
from uuid import UUID

from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.exports.plan import Plan
from tidemill.cli.bench.exports.uploads import list_names, upload
from tidemill.cli.bench.s3 import S3Server
from tidemill.cli.bench.service.http import Client
from tidemill.cli.bench.service.server import BenchServer
from tidemill.cli.bench.worker import BenchWorker
from tidemill.cli.views import errors
from tidemill.config import Settings
from tidemill.domain.errors import TidemillError
from tidemill.store import bench
from tidemill.store.bench_lines import DATASET, DAY, DECLARED, make_lines
from tidemill.store.database import Database

POLL_S = 0.02
PROCESSES = 2
ROUNDS = 3

Samples = defaultdict[str, list[float]]


async def deliver(plan: Plan, db: Database, settings: Settings, jobs: list[UUID], key: str) -> Samples:
    """Every sample of distributions; ``jobs`` has those that were made for them."""
    declared = settings.home / "tidemill.toml"
    declared.write_text(DECLARED)
    with errors.status(f"{plan.inputs:,} files to an object store"), S3Server(settings.home / "s3") as s3:
        await make_lines(db, plan.inputs)
        ours = settings.model_copy(update={"blobs": s3.place(), "config": declared})
        engine = Engine(db, ours, s3.env)
        engine.jobs = jobs
        log = settings.home / "serve_s3.log"
        async with BenchServer(ours, log, environment=s3.env) as server, engine.worker(PROCESSES) as worker:
            return await Deliveries(plan, db, s3, server, worker, key, jobs).take()


class Deliveries:
    def __init__(
        self,
        plan: Plan,
        db: Database,
        s3: S3Server,
        server: BenchServer,
        worker: BenchWorker,
        key: str,
        jobs: list[UUID],
    ) -> None:
        self.samples: Samples = defaultdict(list)
        self._plan = plan
        self._db = db
        self._s3 = s3
        self._server = server
        self._worker = worker
        self._key = key
        self._jobs = jobs

    async def take(self) -> Samples:
        for number in range(min(ROUNDS, self._plan.rounds)):
            await self._distribute("files", reuse=False)
            files, bare = await asyncio.to_thread(self._files), f"bare/{number}"
            self.samples["obstore_s"].append(await upload(self._s3, bare, files))
            await self._distribute("reused", reuse=True)
            self.samples["obstore_list_s"].append(await asyncio.to_thread(list_names, self._s3, bare))
        return self.samples

    async def _distribute(self, name: str, *, reuse: bool) -> None:
        """From the request until the job is closed."""
        inputs = [{"customer": number, "day": DAY} for number in range(1, self._plan.inputs + 1)]
        asked = {"dataset": DATASET, "inputs": inputs, "reuse": {"enabled": reuse, "days": 1}}
        used, started = self._worker.cpu_seconds(), time.monotonic()
        async with Client(self._server.place, self._key) as client:
            job_id = UUID((await client.post("/v1/distributions", asked)).value["job_id"])
        self._jobs.append(job_id)
        while not await self._db.run(bench.is_closed, job_id):
            self._worker.look()
            await asyncio.sleep(POLL_S)
        self.samples[f"{name}_s"].append(time.monotonic() - started)
        self.samples[f"{name}_cpu_s"].append(self._worker.cpu_seconds() - used)
        self.samples["distribution_rss_mb"].append(self._worker.child_rss_mb)
        async with Client(self._server.place, self._key) as client:
            self._check((await client.get(f"/v1/distributions/{job_id}?page_size=1")).value, reuse=reuse)

    def _check(self, made: dict[str, Any], *, reuse: bool) -> None:
        found = (made["status"], made["files_generated"], made["files_reused"])
        if found != ("completed", 0 if reuse else self._plan.inputs, self._plan.inputs if reuse else 0):
            raise TidemillError(f"{found}, {made['error_message']}: what was measured is not the work")

    def _files(self) -> list[bytes]:
        """What the latest distribution has made."""
        folders = sorted((self._s3.folder / "exports").glob("*/*/*/*"))
        return [path.read_bytes() for path in sorted(folders[-1].iterdir())]

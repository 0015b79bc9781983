"""The benchmark of distributions: many small files to a local S3 server, in turns with the bare obstore client.

The files are statements of customers: the lines of one customer on one day.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import obstore
from obstore.store import S3Store

from tidemill.config import Settings
from tidemill.core.errors import TidemillError
from tidemill.store.database import Database
from tidemill.store.statements import make_sql_loader
from tidemill.terminal.console import error_console
from tidemill_bench import database
from tidemill_bench.engine_driver import EngineDriver
from tidemill_bench.http_client import RawHttpClient
from tidemill_bench.plans import ExportBenchPlan
from tidemill_bench.processes import BenchServer, BenchWorker
from tidemill_bench.s3_server import S3_REGION, S3Server

sql = make_sql_loader("tidemill_bench")

STATEMENTS_DATASET = "tidemill_bench_statements"
STATEMENTS_DAY = 20240101
LINES_PER_CUSTOMER = 100
STATEMENTS_DECLARATION = f"""
[datasets.{STATEMENTS_DATASET}]
query = \"""
{sql("read_lines").decode()}
\"""
fields = {{ customer = "integer", day = "yyyymmdd" }}
date_field = "day"
"""


async def create_statement_lines(db: Database, customers: int) -> None:
    async with db.transaction(bounded=False) as conn:
        for name in ("create_schema", "create_lines"):
            await conn.execute(sql(f"{name}"))
        await conn.execute(
            sql("fill_lines"), {"customers": customers, "lines": LINES_PER_CUSTOMER, "day": STATEMENTS_DAY}
        )
    async with db.connection() as conn:
        await conn.execute(sql("vacuum_lines"), prepare=False)


UPLOAD_CONCURRENCY = 32


async def time_uploads(server: S3Server, folder: str, files: Sequence[bytes]) -> float:
    """Upload the files under their numbers; return the seconds."""
    store = _open_store(server)
    left = iter(enumerate(files))
    started = time.monotonic()
    await asyncio.gather(*(_upload_remaining(store, folder, left) for _ in range(UPLOAD_CONCURRENCY)))
    return time.monotonic() - started


def time_listing(server: S3Server, folder: str) -> float:
    """List the folder; return the seconds."""
    store = _open_store(server)
    started = time.monotonic()
    count = sum(len(batch) for batch in obstore.list(store, prefix=folder))
    if not count:
        raise TidemillError(f"Invalid measurement: {folder} is empty")
    return time.monotonic() - started


def _open_store(server: S3Server) -> S3Store:
    return S3Store(
        server.bucket,
        access_key_id=server.key,
        secret_access_key=server.secret,
        endpoint=server.endpoint,
        region=S3_REGION,
        client_options={"allow_http": True},
    )


async def _upload_remaining(store: S3Store, folder: str, left: Iterator[tuple[int, bytes]]) -> None:
    for number, data in left:
        await obstore.put_async(store, f"{folder}/{number}.csv", data)


DELIVERY_POLL_S = 0.02
DELIVERY_PROCESSES = 2
DELIVERY_ROUNDS_MAX = 3

SampleLists = defaultdict[str, list[float]]


async def measure_deliveries(
    plan: ExportBenchPlan, db: Database, settings: Settings, jobs: list[UUID], key: str
) -> SampleLists:
    """Return the samples of distributions; append their jobs to ``jobs``."""
    declared = settings.home / "tidemill.toml"
    declared.write_text(STATEMENTS_DECLARATION)
    with (
        error_console.status(f"Writing {plan.inputs:,} files to an object store"),
        S3Server(settings.home / "s3") as s3,
    ):
        await create_statement_lines(db, plan.inputs)
        s3_settings = settings.model_copy(update={"blobs": s3.blobs_url(), "config": declared})
        engine = EngineDriver(db, s3_settings, s3.env)
        engine.jobs = jobs
        log = settings.home / "serve_s3.log"
        async with (
            BenchServer(s3_settings, log, environment=s3.env) as server,
            engine.start_warm_worker(DELIVERY_PROCESSES) as worker,
        ):
            return await DeliveryMeasurement(plan, db, s3, server, worker, key, jobs).collect_samples()


class DeliveryMeasurement:
    def __init__(
        self,
        plan: ExportBenchPlan,
        db: Database,
        s3: S3Server,
        server: BenchServer,
        worker: BenchWorker,
        key: str,
        jobs: list[UUID],
    ) -> None:
        self.samples: SampleLists = defaultdict(list)
        self._plan = plan
        self._db = db
        self._s3 = s3
        self._server = server
        self._worker = worker
        self._key = key
        self._jobs = jobs

    async def collect_samples(self) -> SampleLists:
        for number in range(min(DELIVERY_ROUNDS_MAX, self._plan.rounds)):
            await self._measure_distribution("files", reuse=False)
            files, bare = await asyncio.to_thread(self._read_distributed_files), f"bare/{number}"
            self.samples["obstore_s"].append(await time_uploads(self._s3, bare, files))
            await self._measure_distribution("reused", reuse=True)
            self.samples["obstore_list_s"].append(await asyncio.to_thread(time_listing, self._s3, bare))
        return self.samples

    async def _measure_distribution(self, name: str, *, reuse: bool) -> None:
        """Measure the time from the request until the job is closed."""
        inputs = [{"customer": number, "day": STATEMENTS_DAY} for number in range(1, self._plan.inputs + 1)]
        body = {"dataset": STATEMENTS_DATASET, "inputs": inputs, "reuse": {"enabled": reuse, "days": 1}}
        used, started = self._worker.cpu_seconds(), time.monotonic()
        async with RawHttpClient(self._server.place, self._key) as client:
            job_id = UUID((await client.post("/v1/distributions", body)).checked_json["job_id"])
        self._jobs.append(job_id)
        while not await self._db.run(database.is_job_closed, job_id):
            self._worker.sample_memory()
            await asyncio.sleep(DELIVERY_POLL_S)
        self.samples[f"{name}_s"].append(time.monotonic() - started)
        self.samples[f"{name}_cpu_s"].append(self._worker.cpu_seconds() - used)
        self.samples["distribution_rss_mb"].append(self._worker.child_rss_mb)
        async with RawHttpClient(self._server.place, self._key) as client:
            self._check_distribution(
                (await client.get(f"/v1/distributions/{job_id}?page_size=1")).checked_json, reuse=reuse
            )

    def _check_distribution(self, made: dict[str, Any], *, reuse: bool) -> None:
        found = (made["status"], made["files_generated"], made["files_reused"])
        if found != ("completed", 0 if reuse else self._plan.inputs, self._plan.inputs if reuse else 0):
            raise TidemillError(f"Invalid measurement: distribution ended with {found}: {made['error_message']}")

    def _read_distributed_files(self) -> list[bytes]:
        """Return the files of the latest distribution."""
        folders = sorted((self._s3.folder / "exports").glob("*/*/*/*"))
        return [path.read_bytes() for path in sorted(folders[-1].iterdir())]

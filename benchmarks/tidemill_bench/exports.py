"""The benchmark of exports: exports in turns with psql's COPY of the same query, and the report."""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from tidemill.config import Settings
from tidemill.core.errors import TidemillError
from tidemill.core.principal import Role
from tidemill.exports.table_export_request import TableExportPlan, TableExportRequest, build_table_export_plan
from tidemill.exports.table_exporter import compile_export_query
from tidemill.store import users
from tidemill.store.database import Database
from tidemill.tables.resource_registry import ResourceRegistry
from tidemill.terminal.console import error_console
from tidemill_bench import database, workbooks
from tidemill_bench.baselines import BENCH_USERS_TABLE, PsqlCopy
from tidemill_bench.deliveries import measure_deliveries
from tidemill_bench.engine_driver import EngineDriver
from tidemill_bench.environment import Samples, run_measurement
from tidemill_bench.http_client import RawHttpClient, drain_stream
from tidemill_bench.plans import ExportBenchPlan
from tidemill_bench.processes import BenchServer, BenchWorker
from tidemill_bench.results import build_result, compute_medians, compute_spread, describe_spread
from tidemill_bench.s3_server import has_rclone

EXPORT_PEAK_FIGURES = ("rss_mb", "service_rss_mb", "worker_rss_mb", "distribution_rss_mb")
EXPORT_RATIO_TERMS = {
    "csv_stream_vs_copy": ("copy_to_reader_s", "csv_stream_s"),
    "csv_file_vs_copy": ("copy_to_file_s", "csv_file_s"),
    "ndjson_vs_copy": ("ndjson_copy_s", "ndjson_stream_s"),
    "parquet_vs_copy": ("copy_to_file_s", "parquet_s"),
    "xlsx_vs_xlsxwriter": ("xlsxwriter_s", "xlsx_s"),
    "files_vs_obstore": ("obstore_s", "files_s"),
}
TABLE_RATE_NAMES = (
    "copy_to_reader",
    "copy_to_file",
    "csv_stream",
    "csv_file",
    "ndjson_copy",
    "ndjson_stream",
    "parquet",
)
WORKBOOK_RATE_NAMES = ("xlsx", "xlsxwriter")
DELIVERY_RATE_NAMES = ("files", "obstore", "reused")


def build_report(
    plan: ExportBenchPlan, samples: Mapping[str, Sequence[float]], server: dict[str, str], _: Settings, is_own: bool
) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    found = compute_figures(plan, samples)
    used: dict[str, Any] = {name: getattr(plan, name) for name in ExportBenchPlan.__slots__}
    if "xlsxwriter_s" not in samples:
        used["xlsx_vs_xlsxwriter"] = "not measured: XlsxWriter is not installed"
    if "files_s" not in samples:
        used["files_vs_obstore"] = used["reused_per_s"] = "not measured: rclone is not installed"
    return build_result(compute_ratios(found), found, used, server, is_own)


def compute_ratios(found: Mapping[str, float]) -> dict[str, float]:
    """Return the ratios: seconds of the baseline ÷ seconds of Tidemill."""
    return {name: found[bare] / found[own] for name, (bare, own) in EXPORT_RATIO_TERMS.items() if bare in found}


def compute_figures(plan: ExportBenchPlan, samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    found = compute_medians(samples, EXPORT_PEAK_FIGURES)
    found["rss_mb"] = max(found["service_rss_mb"], found["worker_rss_mb"])
    found["copy_spread"] = compute_spread(samples["copy_to_reader_s"])
    for names, rows in (
        (TABLE_RATE_NAMES, plan.users),
        (WORKBOOK_RATE_NAMES, plan.book_rows),
        (DELIVERY_RATE_NAMES, plan.inputs),
    ):
        found |= {f"{name}_per_s": rows / found[f"{name}_s"] for name in names if f"{name}_s" in found}
    return found


def describe_noise(found: Mapping[str, float]) -> str | None:
    return describe_spread(found["copy_spread"])


EXPORT_JOB_POLL_S = 0.02

SampleLists = defaultdict[str, list[float]]


class ExportMeasurement:
    """Collects the samples of a plan, with a server and a worker of one process."""

    def __init__(
        self,
        plan: ExportBenchPlan,
        db: Database,
        engine: EngineDriver,
        bare: PsqlCopy,
        server: BenchServer,
        worker: BenchWorker,
        key: str,
        folder: Path,
    ) -> None:
        self.samples: SampleLists = defaultdict(list)
        self._plan = plan
        self._db = db
        self._engine = engine
        self._bare = bare
        self._server = server
        self._worker = worker
        self._key = key
        self._copied = folder / "copied"

    async def collect_samples(self) -> SampleLists:
        plan = self._plan
        self._record("load_average_before", os.getloadavg()[0])
        csv, ndjson, xlsx = [await self._plan_table_export(name) for name in ("csv", "ndjson", "xlsx")]
        with error_console.status("") as status:
            for number in range(plan.rounds):
                status.update(f"Round {number + 1} of {plan.rounds}: {plan.users:,} users")
                await self._measure_round(csv, ndjson)
            status.update(f"Workbooks of {plan.book_rows:,} users")
            await self._measure_workbooks(csv, xlsx)
        return self.samples

    async def _measure_round(self, csv: TableExportPlan, ndjson: TableExportPlan) -> None:
        """Measure each export between two runs of its baseline."""
        await self._measure_copy("copy_to_reader_s", csv)
        await self._measure_stream("csv_stream_s", csv)
        await self._measure_copy("copy_to_reader_s", csv)
        await self._measure_copy("copy_to_file_s", csv)
        await self._measure_file_export("csv_file_s", "csv")
        await self._measure_file_export("parquet_s", "parquet")
        await self._measure_copy("copy_to_file_s", csv)
        await self._measure_copy("ndjson_copy_s", ndjson)
        await self._measure_stream("ndjson_stream_s", ndjson)
        await self._measure_copy("ndjson_copy_s", ndjson)

    async def _measure_copy(self, name: str, plan: TableExportPlan) -> None:
        into = self._copied if name == "copy_to_file_s" else None
        self._record(
            name,
            await asyncio.to_thread(
                self._bare.copy, compile_export_query(plan), plan.file_spec.postgres_copy_format, into
            ),
        )

    async def _measure_stream(self, name: str, plan: TableExportPlan) -> None:
        """From the request until the last byte is here."""
        path = f"/v1/exports?resource={BENCH_USERS_TABLE}&format={plan.format}"
        running = asyncio.create_task(
            _await_seconds(asyncio.to_thread(drain_stream, self._server.place, path, self._key))
        )
        self._record("service_rss_mb", await self._server.peak_rss_mb(running))
        self._record(name, await running)

    async def _measure_file_export(self, name: str, format_: str) -> None:
        """From the request until the job is closed, and its file stored."""
        started = time.monotonic()
        async with RawHttpClient(self._server.place, self._key) as client:
            asked = (await client.post("/v1/exports", {"resource": BENCH_USERS_TABLE, "format": format_})).checked_json
        job_id = UUID(asked["job_id"])
        self._engine.jobs.append(job_id)
        while not await self._db.run(database.is_job_closed, job_id):
            self._worker.sample_memory()
            await asyncio.sleep(EXPORT_JOB_POLL_S)
        self._record(name, time.monotonic() - started)
        self._record("worker_rss_mb", self._worker.child_rss_mb)
        async with RawHttpClient(self._server.place, self._key) as client:
            made = (await client.get(f"/v1/exports/{job_id}")).checked_json
        if (made["status"], made["record_count"]) != ("completed", self._plan.users):
            raise TidemillError(
                f"{format_} export ended as {made['status']} with {made['record_count']} rows: {made['failure_reason']}"
            )

    async def _measure_workbooks(self, csv: TableExportPlan, xlsx: TableExportPlan) -> None:
        some, made = self._copied.with_suffix(".some"), self._copied.with_suffix(".xlsx")
        await asyncio.to_thread(self._bare.copy, compile_export_query(csv), "csv", self._copied)
        await asyncio.to_thread(workbooks.copy_first_rows, self._copied, some, self._plan.book_rows)
        turns: dict[str, Any] = {"xlsx_s": workbooks.write_with_tidemill}
        if workbooks.has_xlsxwriter():
            turns["xlsxwriter_s"] = workbooks.write_with_xlsxwriter
        for _ in range(min(2, self._plan.rounds)):
            for name, make in turns.items():
                self._record(name, await asyncio.to_thread(make, xlsx.file_spec, some, made))

    async def _plan_table_export(self, format_: str) -> TableExportPlan:
        resource = await ResourceRegistry({}).get_resource(
            self._db, BENCH_USERS_TABLE, any_table=True, for_reading=True
        )
        return build_table_export_plan(TableExportRequest(resource=BENCH_USERS_TABLE, format=format_), resource)

    def _record(self, name: str, value: float) -> None:
        self.samples[name].append(value)


async def _await_seconds(waited: Awaitable[float]) -> float:
    return await waited


def run_benchmark(plan: ExportBenchPlan) -> dict[str, Any]:
    """Measure exports."""

    async def collect_samples(db: Database, settings: Settings, engine: EngineDriver) -> Samples:
        user = await db.run(users.add_user, f"bench {uuid4().hex[:8]}", Role.ADMIN)
        try:
            key, _ = await db.run(users.add_key, user.id)
            with error_console.status(f"Creating {plan.users:,} users"):
                bare = await PsqlCopy.create(db, plan.users)
            async with (
                BenchServer(settings, settings.home / "serve.log") as server,
                engine.start_warm_worker(1) as worker,
            ):
                samples = await ExportMeasurement(
                    plan, db, engine, bare, server, worker, key, settings.home
                ).collect_samples()
            if has_rclone():
                samples |= await measure_deliveries(plan, db, settings, engine.jobs, key)
            return samples
        finally:
            await db.run(users.remove_user, user)

    return run_measurement(collect_samples, lambda *found: build_report(plan, *found))

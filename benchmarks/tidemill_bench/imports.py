"""The benchmark of imports: imports in turns with a bare COPY of the same rows, and the report."""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from tidemill.app.runtime_factory import make_runtime
from tidemill.config import Settings
from tidemill.core.errors import TidemillError
from tidemill.core.kinds import IMPORT_KIND
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.files.blobs import open_blob_store
from tidemill.imports.import_plan import ImportRequest, ImportWriteMode
from tidemill.imports.import_submission import ImportFile, ImportSubmission
from tidemill.imports.undo import start_undo
from tidemill.imports.use_cases import make_import_use_cases
from tidemill.store import job_records
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill.tables.resource import Field, Resource
from tidemill.tables.resource_registry import ResourceRegistry
from tidemill.terminal.console import error_console
from tidemill_bench import baselines, database, import_files
from tidemill_bench.baselines import BareImportTables
from tidemill_bench.engine_driver import EngineDriver
from tidemill_bench.environment import Samples, run_measurement
from tidemill_bench.import_files import ImportSample
from tidemill_bench.plans import ImportBenchPlan
from tidemill_bench.processes import BenchWorker
from tidemill_bench.results import build_result, compute_medians, compute_spread, describe_spread


def build_report(
    plan: ImportBenchPlan, samples: Mapping[str, Sequence[float]], server: dict[str, str], _: Settings, is_own: bool
) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    found = compute_figures(samples)

    def sum_of(name: str) -> float:
        return sum(found[f"{name}_{mode}_import_s"] for mode in UNDO_MODES)

    ratios = {
        "import_wall_vs_copy": found["import_s"] / found["copy_s"],
        "import_ndjson_wall_vs_copy": found["ndjson_import_s"] / found["ndjson_copy_s"],
        "all_bad_vs_all_good": found["all_bad_import_s"] / found["all_good_import_s"],
        "locale_vs_plain": found["locale_import_s"] / found["plain_import_s"],
        "undoable_vs_plain": sum_of("undoable") / sum_of("final"),
        "undo_vs_import": (found["insert_undo_s"] + found["upsert_undo_s"]) / sum_of("undoable"),
        "natural_key_vs_id": found["natural_key_import_s"] / found["id_import_s"],
    }
    found |= {
        "copy_rows_per_s": plan.users * 0.99 / found["copy_s"],
        "import_rows_per_s": plan.users / found["import_s"],
        "ndjson_import_rows_per_s": plan.articles / found["ndjson_import_s"],
    }
    return build_result(
        ratios, found, {name: getattr(plan, name) for name in ImportBenchPlan.__slots__}, server, is_own
    )


def compute_figures(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return medians; for memory and the time to the first row, the maximum."""
    peaks = {name for name in samples if name == "import_rss_mb" or name.endswith("first_row_s")}
    return compute_medians(samples, peaks) | {"copy_spread": compute_spread(samples["copy_s"])}


def describe_noise(found: Mapping[str, float]) -> str | None:
    return describe_spread(found["copy_spread"])


UNDO_MODES: tuple[ImportWriteMode, ...] = ("insert", "upsert")
IMPORT_JOB_POLL_S = 0.05
DEFAULT_REQUEST = ImportRequest()
EMAIL_PATTERN = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
SLUG_PATTERN = r"[a-z0-9]+(?:-[a-z0-9]+)*"
FIELD_PATTERNS = {"email": EMAIL_PATTERN, "slug": SLUG_PATTERN}

SampleLists = defaultdict[str, list[float]]


class ImportMeasurement:
    """Collects the samples of a plan."""

    def __init__(
        self, plan: ImportBenchPlan, db: Database, settings: Settings, engine: EngineDriver, bare: BareImportTables
    ) -> None:
        self.samples: SampleLists = defaultdict(list)
        self._plan = plan
        self._db = db
        self._settings = settings
        self._engine = engine
        self._bare = bare
        self._blobs = open_blob_store(settings.blobs)
        self._runtime = make_runtime(db, settings)
        self._importing = self._runtime.get(make_import_use_cases)

    async def collect_samples(self) -> SampleLists:
        plan, folder = self._plan, self._settings.home
        self._record("load_average_before", os.getloadavg()[0])
        with error_console.status("Writing files") as status:
            users = await asyncio.to_thread(import_files.write_users_file, folder, plan.users)
            articles = await asyncio.to_thread(import_files.write_articles_file, folder, plan.articles)
            for number in range(plan.rounds):
                status.update(f"Round {number + 1} of {plan.rounds}: {plan.users:,} users")
                await self._measure_table("users", "", users)
                status.update(f"Round {number + 1} of {plan.rounds}: {plan.articles:,} articles")
                await self._measure_table("articles", "ndjson_", articles)
            status.update(f"{plan.pairs:,} rows, all good and all bad")
            await self._measure_good_and_bad_files(folder)
            status.update(f"{plan.pairs:,} rows, in plain notation and in another")
            await self._measure_notations(folder)
            status.update(f"{plan.pairs:,} rows, with and without undo")
            await self._measure_undo(folder)
            status.update(f"{plan.pairs:,} rows, with ids and with names of referenced rows")
            await self._measure_references(folder)
        return self.samples

    async def _measure_table(self, table: str, name: str, sample: ImportSample) -> None:
        """Measure an import between two bare COPYs."""
        await self._measure_copy(table, name, sample)
        await self._measure_import(table, name, sample)
        await self._measure_copy(table, name, sample)

    async def _measure_good_and_bad_files(self, folder: Path) -> None:
        n = self._plan.pairs
        samples = {
            word: await asyncio.to_thread(import_files.write_users_file, folder, n, is_bad=is_bad)
            for word, is_bad in (("good", _is_never_bad), ("bad", _is_always_bad))
        }
        for _ in range(self._plan.rounds):
            for word, sample in samples.items():
                await self._measure_import("users", f"all_{word}_", sample)

    async def _measure_notations(self, folder: Path) -> None:
        """Measure files with the same rows, in plain notation and as a German spreadsheet writes them."""
        for _ in range(self._plan.rounds):
            for name in ("plain", "locale"):
                sample = await asyncio.to_thread(
                    import_files.write_payments_file, folder, self._plan.pairs, is_plain=name == "plain"
                )
                await self._measure_import("payments", f"{name}_", sample)

    async def _measure_undo(self, folder: Path) -> None:
        """Measure inserts, and upserts of which two thirds are updates, without and with undo; then the undo."""
        sample = await asyncio.to_thread(import_files.write_payments_file, folder, self._plan.pairs, is_plain=True)
        for _ in range(self._plan.rounds):
            for name in ("final", "undoable"):
                for mode in UNDO_MODES:
                    if mode == "upsert":
                        await asyncio.to_thread(self._bare.fill_payments, self._plan.pairs)
                    await self._measure_import(
                        "payments",
                        f"{name}_{mode}_",
                        sample,
                        ImportRequest(mode=mode, undo=name == "undoable"),
                        empty=mode == "insert",
                    )
                    if name == "undoable":
                        await self._measure_undo_of_last_import(mode)

    async def _measure_undo_of_last_import(self, mode: ImportWriteMode) -> None:
        job = await self._db.read(job_records.get_job, self._engine.jobs[-1])
        wal, started = await self._db.run(database.read_wal_bytes), time.monotonic()
        operation = await start_undo(self._runtime, job, by=LOCAL_USER_ID)
        self._record(f"{mode}_undo_s", time.monotonic() - started)
        self._record(f"{mode}_undo_wal_mb", (await self._db.run(database.read_wal_bytes) - wal) / 1e6)
        if (operation.state, operation.items) != ("done", self._plan.pairs):
            raise TidemillError(f"Invalid measurement: the undo reversed {operation.items} rows")

    async def _measure_references(self, folder: Path) -> None:
        """Measure files with the same rows, which refer to authors by id, and by e-mail address."""
        for _ in range(self._plan.rounds):
            for name, lookups in (("id", {}), ("natural_key", {"author_id": ["email"]})):
                sample = await asyncio.to_thread(
                    import_files.write_references_file, folder, self._plan.pairs, has_keys=name == "id"
                )
                await self._measure_import("articles", f"{name}_", sample, ImportRequest(lookups=lookups))

    async def _measure_copy(self, table: str, name: str, sample: ImportSample) -> None:
        await asyncio.to_thread(self._bare.truncate, table, import_files.make_author_rows())
        seconds = await asyncio.to_thread(self._bare.copy, table, sample.read_clean_chunks())
        self._record(f"{name}copy_s", seconds)

    async def _measure_import(
        self,
        table: str,
        name: str,
        sample: ImportSample,
        request: ImportRequest = DEFAULT_REQUEST,
        *,
        empty: bool = True,
    ) -> None:
        """Measure an import from the submission of a stored file until its job is closed."""
        if empty:
            await asyncio.to_thread(self._bare.truncate, table, import_files.make_author_rows())
        resource = _add_field_rules(
            await ResourceRegistry({}).get_resource(self._db, f"tidemill_bench.{table}", any_table=True)
        )
        blob = await asyncio.to_thread(self._blobs.put_file, sample.file)
        async with self._engine.start_warm_worker(self._plan.processes) as worker:
            wal, cpu, started = await self._db.run(database.read_wal_bytes), worker.cpu_seconds(), time.monotonic()
            submission = ImportSubmission(spec=Submission(IMPORT_KIND), resource=resource, request=request)
            job_id, *_ = await self._importing.submit_file(submission, ImportFile(blob, sample.file.name))
            self._engine.jobs.append(job_id)
            await self._wait_until_closed(job_id, worker, name, started)
            self._record(f"{name}import_s", time.monotonic() - started)
            self._record(f"{name}import_cpu_s", worker.cpu_seconds() - cpu)
            self._record(f"{name}import_wal_mb", (await self._db.run(database.read_wal_bytes) - wal) / 1e6)
        self._record("import_rss_mb", worker.child_rss_mb)
        await self._check_row_counts(job_id, sample, table)

    async def _wait_until_closed(self, job_id: UUID, worker: BenchWorker, name: str, started: float) -> None:
        first = None
        is_closed = False
        while not is_closed:
            is_closed = await self._db.run(database.is_job_closed, job_id)
            worker.sample_memory()
            if first is None and (await self._db.read(job_records.get_job, job_id)).counts.settled:
                first = time.monotonic() - started
                self._record(f"{name}first_row_s", first)
            if not is_closed:
                await asyncio.sleep(IMPORT_JOB_POLL_S)

    async def _check_row_counts(self, job_id: UUID, sample: ImportSample, table: str) -> None:
        counts = (await self._db.read(job_records.get_job, job_id)).counts
        stored = await self._db.run(baselines.count_rows, table)
        if (counts.failed, stored) != (sample.bad, sample.rows - sample.bad):
            raise TidemillError(f"Invalid measurement: {counts.failed} rows failed and the table has {stored} rows")

    def _record(self, name: str, value: float) -> None:
        self.samples[name].append(value)


def _is_always_bad(_: int) -> bool:
    return True


def _is_never_bad(_: int) -> bool:
    return False


def _add_field_rules(resource: Resource) -> Resource:
    """Return the resource with rules that a table cannot express: patterns, normalization and lengths."""
    return replace(resource, fields=tuple(_restrict_field(field) for field in resource.fields))


def _restrict_field(field: Field) -> Field:
    if field.name in FIELD_PATTERNS:
        return replace(field, pattern=FIELD_PATTERNS[field.name], normalize=("trim", "lower"), max_length=254)
    return replace(field, min_length=1, max_length=200) if field.name in ("name", "title") else field


def run_benchmark(plan: ImportBenchPlan) -> dict[str, Any]:
    """Run the benchmark of imports; return its report."""

    async def collect_samples(db: Database, settings: Settings, engine: EngineDriver) -> Samples:
        with BareImportTables(db.url) as bare:
            return await ImportMeasurement(plan, db, settings, engine, bare).collect_samples()

    return run_measurement(collect_samples, lambda *found: build_report(plan, *found))

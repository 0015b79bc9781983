"""The benchmark of a hostile neighbour: an import of one user, alone and while another user attacks the service."""

import asyncio
import os
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tidemill.app.mill_declarations import HandlerRegistry
from tidemill.config import Settings, load_settings
from tidemill.core.errors import TidemillError
from tidemill.core.principal import Role
from tidemill.engine.maintenance_loop import BlobCleanupLoop
from tidemill.files.blobs import open_blob_store
from tidemill.store import doctor, quota_records, users, workers
from tidemill.store.database import Database
from tidemill.store.statements import make_sql_loader
from tidemill.store.users import User
from tidemill.terminal.console import error_console
from tidemill_bench import attack_requests, baselines, database, import_files
from tidemill_bench.api import compute_quantile
from tidemill_bench.attacks import (
    ATTACKS,
    SECOND_ACCOUNT_ATTACKS,
    SLOW_SERVER_ATTACKS,
    AttackReport,
    RunningAttacks,
)
from tidemill_bench.baselines import BareImportTables
from tidemill_bench.broker_servers import find_free_port
from tidemill_bench.engine_driver import EngineDriver
from tidemill_bench.environment import open_bench_database, prepare_bench_settings
from tidemill_bench.http_client import RawHttpClient
from tidemill_bench.import_files import ImportSample
from tidemill_bench.mill import BENCH_MILL_REFERENCE, mill, parked_mill
from tidemill_bench.plans import NeighbourBenchPlan
from tidemill_bench.processes import BenchServer
from tidemill_bench.results import build_result

sql = make_sql_loader("tidemill_bench")
TARGET_RESOURCE = "users"
RESOURCES = {
    TARGET_RESOURCE: "users",
    attack_requests.TRAP_RESOURCE: "traps",
    attack_requests.STREAM_RESOURCE: "lines",
}
WORKER_PROCESSES = 2
HEALTH_INTERVAL_S = 0.05
IMPORT_POLL_S = 0.05
IMPORT_TIMEOUT_S = 600.0
ATTACK_START_TIMEOUT_S = 120.0
MAX_ATTACK_S = 3_600.0
SECOND_ACCOUNT_OPEN_JOBS = 100
CLOSED_STATUSES = ("completed", "completed_with_errors", "failed", "cancelled")

SampleLists = defaultdict[str, list[float]]


def build_report(
    plan: NeighbourBenchPlan,
    samples: Mapping[str, Sequence[float]],
    attacks: Mapping[str, AttackReport],
    server: dict[str, str],
    *,
    is_own: bool,
) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    found = compute_figures(samples)
    ratios = {"neighbour_import_vs_quiet": found["attacked_import_s"] / found["quiet_import_s"]}
    used = {name: getattr(plan, name) for name in NeighbourBenchPlan.__slots__ if name != "attacks"}
    result = build_result(ratios, found, used, server, is_own)
    result["attacks"] = {
        name: {"statuses": dict(report.statuses), "cpu_s": report.cpu_s} for name, report in attacks.items()
    }
    return result


def compute_figures(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    found = {name: values[0] for name, values in samples.items() if len(values) == 1}
    for state in ("quiet", "attacked"):
        imports = samples[f"{state}_import_s"]
        found |= {f"{state}_import_s": statistics.median(imports), f"{state}_import_max_s": max(imports)}
    for name, stem in (("quiet_health_ms", "quiet_health"), ("attacked_health_ms", "neighbour_health")):
        found[f"{stem}_p50_ms"] = statistics.median(samples[name])
        found[f"{stem}_p99_ms"] = compute_quantile(samples[name], 0.99)
    return found


class NeighbourMeasurement:
    """Imports a file over HTTP again and again, and requests /health meanwhile."""

    def __init__(
        self, server: BenchServer, db: Database, bare: BareImportTables, sample: ImportSample, key: str
    ) -> None:
        self.samples: SampleLists = defaultdict(list)
        self._server = server
        self._db = db
        self._bare = bare
        self._sample = sample
        self._content = sample.file.read_bytes()
        self._key = key

    async def measure(self, state: str, rounds: int) -> None:
        """Record the imports and the latencies under this name."""
        probing = asyncio.create_task(self._probe_health(f"{state}_health_ms"))
        try:
            for _ in range(rounds):
                self.samples[f"{state}_import_s"].append(await self.import_once())
        finally:
            probing.cancel()
            await asyncio.wait([probing])
        if not probing.cancelled() and (error := probing.exception()) is not None:
            raise error

    async def import_once(self) -> float:
        """Empty the table and import the file; return the seconds from the request until the job is closed."""
        await asyncio.to_thread(self._bare.truncate, "users", b"")
        async with asyncio.timeout(IMPORT_TIMEOUT_S), RawHttpClient(self._server.place, self._key) as client:
            started = time.monotonic()
            path = f"/v1/imports?resource={TARGET_RESOURCE}"
            body = await client.send(path, "text/csv", len(self._content), [self._content])
            job_id = body.checked_json["job_id"]
            shown = await poll_until_closed(client, f"/v1/imports/{job_id}")
            seconds = time.monotonic() - started
        stored = await self._db.run(baselines.count_rows, "users")
        expected = self._sample.rows - self._sample.bad
        if (stored, shown["counts"]["failed"]) != (expected, self._sample.bad):
            raise TidemillError(f"Invalid measurement: the import {shown['status']} and stored {stored} rows: {shown}")
        return seconds

    async def _probe_health(self, name: str) -> None:
        """Request /health on a new connection each time, as probes do."""
        while True:
            pause = asyncio.create_task(asyncio.sleep(HEALTH_INTERVAL_S))
            started = time.perf_counter()
            async with RawHttpClient(self._server.place, self._key) as client:
                (await client.get("/health")).checked_json  # noqa: B018  raises if the request failed
            self.samples[name].append((time.perf_counter() - started) * 1000)
            await pause


async def poll_until_closed(client: RawHttpClient, path: str) -> Any:
    """Return the job or import at this path when it is closed. The caller limits the time."""
    while True:
        shown = (await client.get(path)).checked_json
        if shown["status"] in CLOSED_STATUSES:
            return shown
        await asyncio.sleep(IMPORT_POLL_S)


def run_benchmark(plan: NeighbourBenchPlan) -> dict[str, Any]:
    """Run the benchmark of a hostile neighbour; return its report."""
    settings = load_settings()
    with prepare_bench_settings(settings) as bench_settings:
        configured = bench_settings.model_copy(update={"config": write_config(bench_settings.home)})
        return asyncio.run(_run_with_database(plan, configured, is_own=settings.database_url is None))


def write_config(folder: Path, resources: Mapping[str, str] = RESOURCES) -> Path:
    """Declare tables as resources that all users may read and write; return the path of the file."""
    grants = 'read = ["user"]\nwrite = ["user"]\n'
    path = folder / "bench.toml"
    tables = [f'[resources.{name}]\ntable = "tidemill_bench.{table}"\n{grants}' for name, table in resources.items()]
    path.write_text("".join(tables) + f'[resources.{TARGET_RESOURCE}.fields.email]\nformat = "email"\n')
    return path


async def create_tables(db: Database, streamed_rows: int) -> None:
    async with db.transaction(bounded=False) as conn:
        for name in (
            "create_schema",
            "create_users",
            "create_traps",
            "create_trap_function",
            "create_trap_trigger",
            "create_lines",
        ):
            await conn.execute(sql(name))
        await conn.execute(sql("fill_lines"), {"day": 1, "customers": max(1, streamed_rows // 100), "lines": 100})


@asynccontextmanager
async def create_users(db: Database, settings: Settings, *names: str, is_own: bool) -> AsyncIterator[list[User]]:
    """Create users; remove them and all their jobs at the end if the database is not the benchmark's own."""
    made = [await db.run(users.add_user, f"bench {name} {uuid4().hex[:8]}", Role.USER) for name in names]
    try:
        yield made
    finally:
        if not is_own:
            for user in made:
                await database.remove_benchmark_data(db, await db.run(database.list_owner_jobs, user.id))
                await db.run(users.remove_user, user)
            await BlobCleanupLoop(db, open_blob_store(settings.blobs)).remove_unneeded_blobs()


async def _run_with_database(plan: NeighbourBenchPlan, settings: Settings, *, is_own: bool) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(open_bench_database(settings, is_own=is_own))
        created = create_users(db, settings, "measured", "hostile", "hostile 2", is_own=is_own)
        measured, hostile, second = await stack.enter_async_context(created)
        bare = stack.enter_context(BareImportTables(db.url))
        await create_tables(db, plan.streamed_rows)
        await db.run(quota_records.set_quota, second.id, {"open_jobs": SECOND_ACCOUNT_OPEN_JOBS}, [])
        await register_kinds(db, mill.registry, parked_mill.registry)
        keys = [(await db.run(users.add_key, user.id))[0] for user in (measured, hostile, second)]
        sample = await asyncio.to_thread(import_files.write_users_file, settings.home, plan.rows)
        slow_ports = {name: find_free_port() for name in SLOW_SERVER_ATTACKS}
        allowed = {"TIDEMILL_REMOTE_ALLOW": ",".join(f"127.0.0.1:{port}" for port in slow_ports.values())}
        engine = stack.enter_context(EngineDriver(db, settings, allowed))
        if not is_own:
            stack.push_async_callback(database.remove_jobs, db, engine.jobs)
        worker = await stack.enter_async_context(engine.start_warm_worker(WORKER_PROCESSES))
        server = await stack.enter_async_context(
            BenchServer(settings, settings.home / "serve.log", environment=allowed, mill=BENCH_MILL_REFERENCE)
        )
        measurement = NeighbourMeasurement(server, db, bare, sample, keys[0])
        attacks = await _measure_quiet_then_attacked(plan, measurement, server.place, keys[1:], slow_ports)
        worker.sample_memory()  # raises if the worker has exited
        await check_nothing_lost(db)
        return build_report(
            plan, measurement.samples, attacks, await db.run(database.read_server_settings), is_own=is_own
        )


async def register_kinds(db: Database, *registries: HandlerRegistry) -> None:
    for registry in registries:
        await db.run(workers.register_kinds, registry.create_all())


async def _measure_quiet_then_attacked(
    plan: NeighbourBenchPlan,
    measurement: NeighbourMeasurement,
    address: tuple[str, int],
    keys: Sequence[str],
    slow_ports: Mapping[str, int],
) -> dict[str, AttackReport]:
    samples = measurement.samples
    samples["load_average_before"].append(os.getloadavg()[0])
    with error_console.status("Warming up") as status:
        await measurement.import_once()
        status.update(f"Importing {plan.rows:,} rows on a quiet service")
        await measurement.measure("quiet", plan.rounds)
        names = plan.attacks or tuple(ATTACKS)
        status.update(f"Starting {len(names)} attacks")
        chosen = {name: keys[1] if name in SECOND_ACCOUNT_ATTACKS else keys[0] for name in names}
        with RunningAttacks(address, chosen, slow_ports, MAX_ATTACK_S) as attacks:
            await asyncio.to_thread(attacks.wait_until_started, ATTACK_START_TIMEOUT_S)
            started = time.monotonic()
            await asyncio.sleep(plan.settle_s)
            status.update(f"Importing {plan.rows:,} rows during {len(names)} attacks")
            await measurement.measure("attacked", plan.rounds)
            seconds = time.monotonic() - started
            reports = await asyncio.to_thread(attacks.stop)
    samples["attack_s"].append(seconds)
    samples["attack_requests"].append(sum(sum(report.statuses.values()) for report in reports.values()))
    samples["attack_clients_cpu"].append(sum(report.cpu_s for report in reports.values()) / seconds)
    return reports


async def check_nothing_lost(db: Database) -> None:
    """Raise TidemillError if an invariant of the engine is broken."""
    async with db.transaction(bounded=False) as conn:
        await conn.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", prepare=False)
        broken = [finding for finding in await doctor.check_invariants(conn, None) if not finding.ok]
    if broken:
        raise TidemillError("; ".join(f"{finding.name}: {finding.details}" for finding in broken))

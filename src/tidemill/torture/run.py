"""A complete run: prepares the database and the processes, runs the rounds, and removes everything again."""

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tidemill.app.feature_list import load_features
from tidemill.config import ENV_PREFIX, Settings
from tidemill.core.errors import InvalidInput, Unavailable
from tidemill.core.principal import Role
from tidemill.store import users, workers
from tidemill.store.database import Connection, Database
from tidemill.store.migrate import check_schema, migrate_schema
from tidemill.torture.client import MISSING_ROW_EVERY, Client, Operations
from tidemill.torture.faults import FAULTS, LOOPBACK, Faults, Link, open_links
from tidemill.torture.ledgers import OutsideLedger, Report
from tidemill.torture.plan import FEATURE_JOBS, JOB_SHAPES, plan_rounds
from tidemill.torture.processes import (
    Fleet,
    ManagedProcess,
    OwnServer,
    ServerAddress,
    execute_statement,
    fetch_statement_rows,
    find_server_address,
)
from tidemill.torture.rounds import RoundRunner
from tidemill.torture.workload import LEDGER_VARIABLE, MILL_REFERENCE, OWN_KINDS, make_mill

REQUEST_TIMEOUT_S = 10.0
_REQUEST_REGEX = re.compile(rb"GET /rows/(\d+) ")


async def _answer_service_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            request = _REQUEST_REGEX.match(await reader.readuntil(b"\r\n\r\n"))
        number = int(request[1]) if request else 0
        status, body = (404, b"{}") if number % MISSING_ROW_EVERY == 0 else (200, json.dumps({"n": number}).encode())
        head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def run_local_service() -> AsyncIterator[int]:
    """Run the service and yield its port."""
    server = await asyncio.start_server(_answer_service_request, LOOPBACK, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


API, WORKERS, CLIENT = "api", ("worker-1", "worker-2"), "client"
CHILDREN_PER_WORKER = 2
START_TIMEOUT_S, START_POLL_S = 150.0, 0.2
DATABASE_TIMEOUT_S = 180.0  # a server that recovers from a crash on a busy machine
LEASE_S = 4.0
# Short times, so that leases expire and timeouts occur within a run.
TIMINGS = {
    "lock_floor_ms": int(LEASE_S * 1000),
    "lock_cap_ms": 8_000,
    "db_timeout_ms": 2_500,
    "poll_ms": 200,
    "stop_grace_ms": 2_000,
    "flush_interval_ms": 300,
    "finalizer_interval_ms": 200,
    "claim_max": 100,
    "import_batch_rows": 500,
    "max_concurrent_jobs": 20,
    "distribution_backoff_ms": 100,
    "rate_limit_per_s": 1_000,
    "rate_limit_burst": 2_000,
    "scan_watches": False,
    "cpu_high_percent": 1_000_000,  # a busy machine must not shrink the claims
    "memory_high_percent": 100,
    "log_level": "warning",
}


@dataclass(frozen=True)
class TortureOptions:
    seed: int
    seconds: float
    round_s: float = 45.0
    database_url: str | None = None  # None: an own server
    allow_existing: bool = False
    faults: Sequence[str] = FAULTS
    announce: Callable[[str], None] = print


@dataclass
class Torture:
    """A run. ``report`` has its counts also if the run ends with an exception."""

    options: TortureOptions
    report: Report = field(init=False)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.options.faults) - set(FAULTS))
        if unknown:
            raise InvalidInput(f'Unknown fault "{unknown[0]}". Faults: {", ".join(FAULTS)}')
        self.report = Report(self.options.seed)

    async def run(self) -> Report:
        """Run all rounds. The folder with the logs stays if there is a violation."""
        folder = Path(tempfile.mkdtemp(prefix="tidemill-torture-"))
        started = time.monotonic()
        self.report.is_interrupted = True
        try:
            with contextlib.ExitStack() as stack:
                server = None if self.options.database_url else stack.enter_context(OwnServer(folder))
                try:
                    await self._run_on_server(folder, server)
                    self.report.is_interrupted = False
                finally:
                    if server is not None:
                        shutil.copy(server.log, folder / "postgres.log")
        finally:
            self.report.seconds = time.monotonic() - started
            has_logs = await asyncio.to_thread(lambda: any(folder.glob("*.log")))
            if self.report.has_passed or not has_logs:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                self.report.folder = str(folder)
        return self.report

    async def _run_on_server(self, folder: Path, server: OwnServer | None) -> None:
        url = server.url if server is not None else str(self.options.database_url)
        async with Database(url, size=6, retry_for_s=DATABASE_TIMEOUT_S) as db:
            if server is not None:
                await migrate_schema(db)
            else:
                await check_schema(db)
            own_kinds_only = await self._check_existing_work(db, is_own=server is not None)
            async with _prepare_database(db) as (owner_id, key):
                address = await find_server_address(db)
                names = [API, *WORKERS, CLIENT]
                is_readable = not address.is_encrypted
                async with (
                    open_links(names, address.host, address.port, is_readable=is_readable) as links,
                    run_local_service() as service_port,
                ):
                    setup = RunSetup(
                        folder, server is not None, own_kinds_only, service_port, db, address, links, owner_id, key
                    )
                    await self._run_rounds(setup, server)

    async def _check_existing_work(self, db: Database, *, is_own: bool) -> bool:
        """Return whether only the own kinds of the run may run, so that its workers take no job of the user.

        Raises:
            InvalidInput: The database has jobs, and the user did not allow that.
        """
        [found] = await db.read(fetch_statement_rows, "count_jobs")
        if found["jobs"] and not self.options.allow_existing:
            raise InvalidInput(
                f"The database already has {found['jobs']:,} job{'' if found['jobs'] == 1 else 's'}. "
                "Use another database, or --allow-existing to run beside these jobs."
            )
        if is_own or not (found["jobs"] or found["workers"]):
            return False
        reason = "the database has other jobs or workers"
        self.report.skipped_jobs = dict.fromkeys(FEATURE_JOBS, reason)
        return True

    async def _run_rounds(self, setup: "RunSetup", server: OwnServer | None) -> None:
        options = self.options
        fleet = setup.make_fleet()
        client = setup.make_client()
        tasks: list[asyncio.Task[None]] = []
        try:
            faults = Faults(fleet, setup.links, setup.db, client, server, LEASE_S)
            outside = OutsideLedger(setup.ledger_path)
            operations = Operations(client, setup.owner_id)
            runner = RoundRunner(
                setup.db, client, operations, faults, outside, setup.owner_id, self.report, options.announce
            )
            tasks.append(asyncio.create_task(fleet.keep_running()))
            await setup.wait_until_ready()
            tasks.append(asyncio.create_task(runner.watch_progress()))
            skipped = faults.list_skipped()
            self.report.skipped_faults = {name: skipped[name] for name in options.faults if name in skipped}
            applied = [name for name in options.faults if name not in skipped]
            jobs = [name for name in JOB_SHAPES if name not in self.report.skipped_jobs]
            rounds = plan_rounds(options.seed, options.seconds, options.round_s, jobs=jobs, faults=applied)
            started = time.monotonic()
            try:
                for planned in rounds:
                    await runner.run_round(planned)
                    if time.monotonic() - started > options.seconds:
                        break
                await runner.wait_for_deletions()
            finally:
                self.report.operations = client.operations
                await faults.heal()
                if server is None:
                    await runner.delete_all_jobs()
        finally:
            self.report.process_starts = sum(process.starts for process in fleet.processes)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(fleet.end_processes)
            await client.close()


@dataclass
class RunSetup:
    """What the processes and the client of a run need."""

    folder: Path
    is_own_server: bool
    own_kinds_only: bool
    service_port: int
    db: Database
    address: ServerAddress
    links: dict[str, Link]
    owner_id: int
    key: str

    def __post_init__(self) -> None:
        self.ledger_path = self.folder / "ledger"
        self.api_port = _find_free_port()
        self._settings: dict[str, Any] = TIMINGS | {"remote_allow": [f"{LOOPBACK}:{self.service_port}"]}
        if self.is_own_server:
            self._settings |= {"home": str(self.folder / "home"), "blobs": str(self.folder / "blobs")}
        if self.own_kinds_only:
            self._settings["disabled_features"] = [feature.name for feature in load_features()]

    def make_fleet(self) -> Fleet:
        api = ["serve", MILL_REFERENCE, "--port", str(self.api_port)]
        worker = ["worker", MILL_REFERENCE, "--processes", str(CHILDREN_PER_WORKER)]
        return Fleet(
            ManagedProcess(API, api, self._build_environment(API), self.folder, self._working_folder),
            [
                ManagedProcess(name, worker, self._build_environment(name), self.folder, self._working_folder)
                for name in WORKERS
            ],
        )

    def make_client(self) -> Client:
        settings = Settings(**self._settings | {"database_url": self._build_url(CLIENT)})
        service_url = f"http://{LOOPBACK}:{self.service_port}"
        url = f"http://{LOOPBACK}:{self.api_port}"
        return Client(url, self.key, self.owner_id, make_mill(settings), self.folder, service_url)

    async def wait_until_ready(self) -> None:
        """Wait until the API responds and both workers serve their kinds."""
        deadline = time.monotonic() + START_TIMEOUT_S
        async with httpx2.AsyncClient(trust_env=False, timeout=5) as http:
            while time.monotonic() < deadline:
                with contextlib.suppress(httpx2.HTTPError):
                    response = await http.get(f"http://{LOOPBACK}:{self.api_port}/health")
                    if response.is_success and set(OWN_KINDS) <= await self.db.read(workers.list_live_kinds):
                        return
                await asyncio.sleep(START_POLL_S)
        raise Unavailable(f'The processes did not start in {START_TIMEOUT_S:g} s. See the logs in "{self.folder}".')

    @property
    def _working_folder(self) -> Path:
        """The folder of the processes. A user's installation may have its tidemill.toml in the current folder."""
        return self.folder if self.is_own_server else Path.cwd()

    def _build_url(self, link: str) -> str:
        return self.address.build_proxied_url(LOOPBACK, self.links[link].listening_port)

    def _build_environment(self, link: str) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not (self.is_own_server and name.startswith(ENV_PREFIX)) and name != "DATABASE_URL"
        }
        settings = self._settings | {"database_url": self._build_url(link)}
        ours = {ENV_PREFIX + name.upper(): _format_setting(value) for name, value in settings.items()}
        return inherited | ours | {LEDGER_VARIABLE: str(self.ledger_path), "COLUMNS": "120"}


def _format_setting(value: object) -> str:
    return json.dumps(value) if isinstance(value, list) else str(value)


def _find_free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listening:
        return int(listening.getsockname()[1])


@contextlib.asynccontextmanager
async def _prepare_database(db: Database) -> AsyncIterator[tuple[int, str]]:
    """Create the tables and the owner of a run, and remove them at the end. Yield the owner's id and API key."""
    name = f"tidemill-torture-{secrets.token_hex(4)}"
    await db.run(execute_statement, "create_schema")
    owner = await db.run(users.add_user, name, Role.ADMIN)
    key, _ = await db.run(users.add_key, owner.id)
    try:
        yield owner.id, key
    finally:
        await db.run(execute_statement, "drop_schema")
        await db.run(execute_statement, "forget_run", {"owner_id": owner.id})
        await db.run(_remove_owner, name)


async def _remove_owner(conn: Connection, name: str) -> None:
    await users.remove_user(conn, await users.get_user(conn, name))

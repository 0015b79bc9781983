"""Reach every quota of a user, and check that nothing that the service accepted is lost."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from tidemill.config import Settings, load_settings
from tidemill.core.errors import TidemillError
from tidemill.store import job_records, quota_records, users
from tidemill.store.database import Database
from tidemill.store.users import User
from tidemill.terminal.console import error_console
from tidemill_bench import attack_requests, database
from tidemill_bench.attack_connections import read_stream_slowly
from tidemill_bench.attack_requests import Attacker, serve_slowly
from tidemill_bench.broker_servers import find_free_port
from tidemill_bench.environment import open_bench_database, prepare_bench_settings
from tidemill_bench.http_client import RawHttpClient, TimedResponse
from tidemill_bench.kinds import PARKED_KIND, SLOW_KIND
from tidemill_bench.mill import BENCH_MILL_REFERENCE, mill, parked_mill
from tidemill_bench.neighbour import check_nothing_lost, create_tables, create_users, register_kinds, write_config
from tidemill_bench.processes import BenchServer
from tidemill_bench.results import describe_machine

MEGABYTE = 1 << 20
OPEN_JOBS, OPEN_ROWS, STORED_BYTES = 2, 10, MEGABYTE // 2
STREAMED_ROWS = 100_000
SLICES_PER_USER = 4
BURST, REQUESTS_PER_S = 20, 1
WAIT_S = 30.0
LIMITS = {
    "TIDEMILL_MAX_FILE_SIZE_MB": "1",
    "TIDEMILL_MAX_JSON_BYTES": str(MEGABYTE),
    "TIDEMILL_FETCHES_PER_USER": "1",
    "TIDEMILL_EXPORT_STREAMS_PER_USER": "1",
    "TIDEMILL_RATE_LIMIT_PER_S": str(REQUESTS_PER_S),
    "TIDEMILL_RATE_LIMIT_BURST": str(BURST),
}


@dataclass(frozen=True, slots=True)
class ReachedQuota:
    """The rejection of a request that exceeds a limit."""

    limit: str
    request: str
    status: int
    detail: str


@dataclass
class QuotaProbes:
    """Requests of users who each reach one limit. ``rows_by_job`` are the accepted jobs with their rows."""

    db: Database
    address: tuple[str, int]
    users: Mapping[str, User]  # by limit
    keys: Mapping[str, str]
    slow_port: int
    reached: list[ReachedQuota] = field(default_factory=list)
    rows_by_job: dict[UUID, int | None] = field(default_factory=dict)  # None: a file that no worker has read

    async def probe_open_jobs(self) -> None:
        for _ in range(OPEN_JOBS):
            await self._submit("open jobs", 1)
        await self._submit("open jobs", 1, request=f"job {OPEN_JOBS + 1} of {OPEN_JOBS}")

    async def probe_rows(self) -> None:
        await self._submit("rows", OPEN_ROWS - 4)
        await self._submit("rows", 6, request=f"6 rows when {OPEN_ROWS - 4} of {OPEN_ROWS} are open")
        await self._submit("rows", OPEN_ROWS + 1, request=f"{OPEN_ROWS + 1} rows at once")

    async def probe_storage(self) -> None:
        size = STORED_BYTES * 2 // 3
        await self._upload("storage", size)
        await self._upload("storage", size, request="a second file of two thirds of the quota")
        await self._upload("storage", STORED_BYTES + 1, request="a file larger than the quota")

    async def probe_bytes(self) -> None:
        await self._upload("bytes", MEGABYTE + 1, request="a file larger than TIDEMILL_MAX_FILE_SIZE_MB")
        body = {"kind": PARKED_KIND, "inputs": ["x" * MEGABYTE]}
        self._record("bytes", "a JSON body larger than TIDEMILL_MAX_JSON_BYTES", await self._post("bytes", body))

    async def probe_downloads(self) -> None:
        async with serve_slowly(self.slow_port) as url:
            body = {"resource": attack_requests.TRAP_RESOURCE, "source": {"url": url}}
            calls = [asyncio.create_task(self._post("downloads", body, "/v1/imports/preview")) for _ in range(2)]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            (rejected,) = [call.result() for call in calls if call.done()][:1]
            self._record("downloads", "a second preview from a slow URL", rejected)
            await asyncio.gather(*calls)

    async def probe_streams(self) -> None:
        me = Attacker(self.address, self.keys["streams"], "127.0.0.1", self.slow_port)
        reading = asyncio.create_task(read_stream_slowly(me))
        await _wait_until(lambda: bool(me.statuses))
        async with RawHttpClient(self.address, self.keys["streams"]) as client:
            rejected = await client.get(f"/v1/exports?resource={attack_requests.STREAM_RESOURCE}&format=csv")
        self._record("streams", "a second stream", rejected)
        reading.cancel()
        await asyncio.wait([reading])

    async def probe_time_slices(self) -> None:
        job_id = await self._submit("time slices", 1_000, kind=SLOW_KIND)
        path = f"/v1/jobs/{job_id}/kickoff?durationMs=5000"
        calls = [asyncio.create_task(self._post("time slices", None, path)) for _ in range(SLICES_PER_USER + 1)]
        for call in asyncio.as_completed(calls):
            response = await call
            if response.status == 429:  # noqa: PLR2004  too many slices; 503 means that no child was free in time
                self._record("time slices", f"slice {SLICES_PER_USER + 1} of {SLICES_PER_USER}", response)

    async def probe_requests(self) -> None:
        async with RawHttpClient(self.address, self.keys["requests"]) as client:
            for _ in range(10 * BURST):
                if (response := await client.get("/v1/me")).status != 200:  # noqa: PLR2004
                    self._record("requests", f"more than {BURST} requests at once", response)
                    return

    async def check_accepted_jobs(self) -> None:
        """Raise TidemillError if an accepted job lacks rows, or if a rejected request has stored a job."""
        for job_id, rows in self.rows_by_job.items():
            counts = (await self.db.read(job_records.get_job, job_id)).counts
            if rows is not None and counts.total != rows:
                raise TidemillError(f"Job {job_id} has {counts.total} of {rows} rows")
        stored = {job for user in self.users.values() for job in await self.db.run(database.list_owner_jobs, user.id)}
        if stored != set(self.rows_by_job):
            raise TidemillError(f"{len(stored)} jobs are stored instead of the {len(self.rows_by_job)} accepted ones")

    async def _submit(self, limit: str, rows: int, *, request: str = "", kind: str = PARKED_KIND) -> UUID | None:
        response = await self._post(limit, {"kind": kind, "inputs": list(range(rows))})
        return self._record(limit, request, response, rows)

    async def _upload(self, limit: str, size: int, *, request: str = "") -> UUID | None:
        body = b"n\n" + b"1" * (size - 2)
        async with RawHttpClient(self.address, self.keys[limit]) as client:
            response = await client.send(f"/v1/jobs?kind={PARKED_KIND}", "text/csv", len(body), [body])
        return self._record(limit, request, response, None)

    async def _post(self, limit: str, body: Any, path: str = "/v1/jobs") -> TimedResponse:
        text = b"" if body is None else json.dumps(body).encode()
        async with RawHttpClient(self.address, self.keys[limit]) as client:
            return await client.send(path, "application/json", len(text), [text])

    def _record(self, limit: str, request: str, response: TimedResponse, rows: int | None = None) -> UUID | None:
        """Record an accepted job, or a rejection if ``request`` describes one."""
        shown = json.loads(response.body)
        if request:
            self.reached.append(ReachedQuota(limit, request, response.status, str(shown.get("detail"))))
            if response.status < 400:  # noqa: PLR2004  the first error status
                raise TidemillError(f"The limit of {limit} does not hold: {request} got {response.status}")
            return None
        job_id = UUID(response.checked_json["id"])
        self.rows_by_job[job_id] = rows
        return job_id


async def _wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        if time.monotonic() > deadline:
            raise TidemillError(f"The service did not respond within {WAIT_S:g} s")
        await asyncio.sleep(0.02)


def run_quota_probes() -> dict[str, Any]:
    """Reach every quota; return the rejections, and the number of accepted jobs, of which none is lost."""
    settings = load_settings()
    with prepare_bench_settings(settings) as bench_settings:
        configured = bench_settings.model_copy(update={"config": write_config(bench_settings.home)})
        return asyncio.run(_run_with_database(configured, is_own=settings.database_url is None))


async def _run_with_database(settings: Settings, *, is_own: bool) -> dict[str, Any]:
    async with open_quota_probes(settings, is_own=is_own) as probes:
        steps: dict[str, Callable[[], Awaitable[object]]] = {
            "open jobs": probes.probe_open_jobs,
            "rows": probes.probe_rows,
            "storage": probes.probe_storage,
            "bytes": probes.probe_bytes,
            "downloads": probes.probe_downloads,
            "streams": probes.probe_streams,
            "time slices": probes.probe_time_slices,
            "requests": probes.probe_requests,
        }
        for name, step in steps.items():
            with error_console.status(f"Reaching the limit of {name}"):
                await step()
        await probes.check_accepted_jobs()
        await check_nothing_lost(probes.db)
        quotas = [
            {"limit": one.limit, "request": one.request, "status": one.status, "detail": one.detail}
            for one in probes.reached
        ]
        return {"quotas": quotas, "accepted_jobs": len(probes.rows_by_job), "settings": describe_machine(is_own=is_own)}


PROBED_LIMITS = ("open jobs", "rows", "storage", "bytes", "downloads", "streams", "time slices", "requests")


@asynccontextmanager
async def open_quota_probes(settings: Settings, *, is_own: bool) -> AsyncIterator[QuotaProbes]:
    """Start a service with low limits, without a worker; yield the probes, each with a user of its own."""
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(open_bench_database(settings, is_own=is_own))
        owners = await stack.enter_async_context(create_users(db, settings, *PROBED_LIMITS, is_own=is_own))
        await create_tables(db, STREAMED_ROWS)
        await register_kinds(db, mill.registry, parked_mill.registry)
        by_limit = dict(zip(PROBED_LIMITS, owners, strict=True))
        await _set_quotas(db, by_limit)
        keys = {limit: (await db.run(users.add_key, user.id))[0] for limit, user in by_limit.items()}
        slow_port = find_free_port()
        environment = LIMITS | {"TIDEMILL_REMOTE_ALLOW": f"127.0.0.1:{slow_port}"}
        log: Path = settings.home / "serve.log"
        limited = BenchServer(settings, log, max_file_size_mb=1, environment=environment, mill=BENCH_MILL_REFERENCE)
        server = await stack.enter_async_context(limited)
        yield QuotaProbes(db, server.place, by_limit, keys, slow_port)


async def _set_quotas(db: Database, by_limit: Mapping[str, User]) -> None:
    limits = {"open jobs": ("open_jobs", OPEN_JOBS), "rows": ("open_rows", OPEN_ROWS)}
    limits["storage"] = ("stored_bytes", STORED_BYTES)
    for limit, (name, value) in limits.items():
        await db.run(quota_records.set_quota, by_limit[limit].id, {name: value}, [])

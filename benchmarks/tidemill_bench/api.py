"""The benchmark of the HTTP API: measurements and report. All data of a run is removed at its end."""

import asyncio
import os
import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import cycle, islice
from typing import Any
from uuid import UUID, uuid4

from tidemill.config import Settings, load_settings
from tidemill.core.principal import Role
from tidemill.engine.maintenance_loop import BlobCleanupLoop
from tidemill.files.blobs import open_blob_store
from tidemill.store import users, workers
from tidemill.store.database import Database
from tidemill.store.users import User
from tidemill.terminal.console import error_console
from tidemill_bench import api_load, big_job, database
from tidemill_bench.api_load import PAGE_SIZE, LoadGenerator, PageProbe, find_page_probes
from tidemill_bench.environment import open_bench_database, prepare_bench_settings
from tidemill_bench.http_client import RawHttpClient, TimedResponse
from tidemill_bench.mill import NOOP_KIND, mill
from tidemill_bench.plans import ApiBenchPlan
from tidemill_bench.processes import BenchServer
from tidemill_bench.results import collect_versions, describe_machine, round_figure

LATENCY_SAMPLE_NAMES = ("job_ms", "bare_ms", "api_ms")
QUIET_MACHINE_P99_MS = 20.0  # the p99 of a request without work, if no other process uses the machine
PageSamples = Mapping[tuple[str, str], Sequence[float]]


def build_report(
    plan: ApiBenchPlan,
    samples: Mapping[str, Sequence[float]],
    pages: PageSamples,
    server: dict[str, str],
    settings: Settings,
    *,
    is_own: bool,
) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    used: dict[str, Any] = {name: getattr(plan, name) for name in ApiBenchPlan.__slots__} | {"page_size": PAGE_SIZE}
    used |= describe_machine(is_own=is_own)
    used |= {name: getattr(settings, name) for name in ("db_max_conns", "rate_limit_per_s", "log_level")}
    found = compute_figures(samples, pages)
    ratios = {"page_last_vs_first": round_figure(compute_depth_ratio(pages))}
    return {"ratios": ratios, "figures": found, "versions": collect_versions(server), "settings": used | server}


def compute_figures(samples: Mapping[str, Sequence[float]], pages: PageSamples) -> dict[str, float]:
    """Return one number per name; ``page_p50_ms`` and ``page_p99_ms`` are those of the slowest filter."""
    found: dict[str, float] = {}
    for name, values in samples.items():
        if name in LATENCY_SAMPLE_NAMES:
            found |= _compute_latency_quantiles(name.removesuffix("_ms"), values)
        else:
            found[name] = max(values)
    of_filters, of_depths = _group_pages(pages, 0), _group_pages(pages, 1)
    for name, values in (of_filters | of_depths).items():
        found[f"page_{name}_p99_ms"] = compute_quantile(values, 0.99)
    found["page_p50_ms"] = max(statistics.median(values) for values in of_filters.values())
    found["page_p99_ms"] = max(compute_quantile(values, 0.99) for values in of_filters.values())
    return {name: round_figure(value) for name, value in sorted(found.items())}


def compute_depth_ratio(pages: PageSamples) -> float:
    """Return the highest ratio of a filter: median of its last page ÷ median of its first page."""
    first = {name: statistics.median(values) for (name, depth), values in pages.items() if depth == "first"}
    last = {name: statistics.median(values) for (name, depth), values in pages.items() if depth == "last"}
    return max((last[name] / first[name] for name in last), default=1.0)


def compute_quantile(values: Sequence[float], part: float) -> float:
    """Return the sample that the share ``part`` of all samples does not exceed, rounded up."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def describe_noise(found: Mapping[str, float]) -> str | None:
    """Return a warning if the machine was too busy for reliable figures."""
    if found["bare_p99_ms"] <= QUIET_MACHINE_P99_MS:
        return None
    return f"The machine was not quiet: a request without work took {found['bare_p99_ms']:g} ms (p99)."


def _compute_latency_quantiles(stem: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{stem}_p50_ms": statistics.median(values), f"{stem}_p99_ms": compute_quantile(values, 0.99)}


def _group_pages(pages: PageSamples, by: int) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for key, values in pages.items():
        groups.setdefault(key[by], []).extend(values)
    return groups


WARM_UP_ROUNDS = 2  # not measured: statements are prepared and pages of the database are cached
BARE_REQUEST_PATH = "/v1/me"  # authentication only: the base cost of every request
PAGES_PER_JOB_REQUEST = 5  # then one request for the job and one bare request

SampleLists = defaultdict[str, list[float]]
UploadFunction = Callable[[RawHttpClient, int], Awaitable[TimedResponse]]


class ApiMeasurement:
    """Collects samples by name (milliseconds, megabytes, counts), and those of pages by filter and depth."""

    def __init__(self, plan: ApiBenchPlan, server: BenchServer, job_id: UUID, keys: Sequence[str]) -> None:
        self.samples: SampleLists = defaultdict(list)
        self.pages: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._plan = plan
        self._server = server
        self._job_id = job_id
        self._keys = keys

    async def collect_samples(self) -> None:
        plan = self._plan
        self._record("load_average_before", os.getloadavg()[0])
        with error_console.status("Collecting pages") as status:
            async with RawHttpClient(self._server.place, *self._keys) as client:
                probes = await find_page_probes(client, self._job_id)
                status.update(f"Requesting {len(probes)} different pages of {plan.items:,} items")
                await self._measure_pages(client, probes)
            status.update(f"Load of {plan.client_count} clients for {plan.seconds:g} s")
            await self._measure_load()
            for way in (api_load.as_body, api_load.as_form):
                status.update(f"Uploading {plan.upload_mb} MB {way.__name__.replace('_', ' ')}")
                await self._measure_upload(way)

    async def _measure_pages(self, client: RawHttpClient, probes: Sequence[PageProbe]) -> None:
        """Request all pages in each round, so that a slow moment of the machine affects all of them."""
        for number in range(WARM_UP_ROUNDS + self._plan.rounds):
            if number == WARM_UP_ROUNDS:
                self.pages.clear()
                self.samples["job_ms"].clear()
                self.samples["bare_ms"].clear()
            for n, probe in enumerate(probes):
                answer = await client.get(probe.path)
                answer.checked_json  # noqa: B018  raises if the request failed
                self.pages[probe.filter, probe.depth].append(answer.ms)
                if n % PAGES_PER_JOB_REQUEST == 0:
                    self._record("job_ms", (await client.get(f"/v1/jobs/{self._job_id}")).ms)
                    self._record("bare_ms", (await client.get(BARE_REQUEST_PATH)).ms)

    async def _measure_load(self) -> None:
        plan = self._plan
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(RawHttpClient(self._server.place, key)) for key in self._keys]
            load = LoadGenerator(self._job_id, plan.seconds)
            cpu = self._server.cpu_seconds()
            running = asyncio.create_task(load.run(clients[: plan.pollers], clients[plan.pollers :]))
            await asyncio.wait([running], timeout=plan.seconds / 2)
            before = self._server.rss_mb()
            self._record("api_rss_mb", await self._server.peak_rss_mb(running))
            await running
        self._record("api_cpu", (self._server.cpu_seconds() - cpu) / plan.seconds)
        self._record("api_rss_growth_mb", self._server.rss_mb() - before)
        self.samples["api_ms"] = load.answers
        self._record("api_requests", len(load.answers))
        self._record("api_errors", len(load.errors))
        for line in load.errors[:3]:
            error_console.print(line, highlight=False, markup=False)

    async def _measure_upload(self, way: UploadFunction) -> None:
        before = self._server.rss_mb()
        async with RawHttpClient(self._server.place, self._keys[0]) as client:
            running = asyncio.create_task(_await_response(way(client, self._plan.upload_mb)))
            peak = await self._server.peak_rss_mb(running)
            answer = await running
        answer.checked_json  # noqa: B018  raises if the request failed
        self._record("upload_rss_growth_mb", peak - before)
        self._record(f"upload_{way.__name__}_mb_per_s", self._plan.upload_mb / answer.ms * 1000)

    def _record(self, name: str, value: float) -> None:
        self.samples[name].append(value)


async def _await_response(response: Awaitable[TimedResponse]) -> TimedResponse:
    return await response


def run_benchmark(plan: ApiBenchPlan) -> dict[str, Any]:
    """Run the benchmark of the HTTP API; return its report."""
    settings = load_settings()
    with prepare_bench_settings(settings) as bench_settings:
        return asyncio.run(_run_with_database(plan, bench_settings, is_own=settings.database_url is None))


async def _run_with_database(plan: ApiBenchPlan, settings: Settings, *, is_own: bool) -> dict[str, Any]:
    async with open_bench_database(settings, is_own=is_own) as db:
        user = await db.run(users.add_user, f"bench {uuid4().hex[:8]}", Role.USER)
        try:
            return await _measure_as_user(plan, settings, db, user, is_own=is_own)
        finally:
            if not is_own:
                await database.remove_benchmark_data(db, await db.run(database.list_owner_jobs, user.id))
                await db.run(users.remove_user, user)
                await BlobCleanupLoop(db, open_blob_store(settings.blobs)).remove_unneeded_blobs()


async def _measure_as_user(
    plan: ApiBenchPlan, settings: Settings, db: Database, user: User, *, is_own: bool
) -> dict[str, Any]:
    await db.run(workers.register_kinds, mill.registry.create_all())
    made = [(await db.run(users.add_key, user.id))[0] for _ in range(min(plan.client_count, users.MAX_KEYS_PER_USER))]
    keys = list(islice(cycle(made), plan.client_count))
    with error_console.status(f"Creating a job of {plan.items:,} items"):
        job_id = await big_job.create_big_job(db, user.id, NOOP_KIND, plan.items)
    log = settings.home / "serve.log"
    async with BenchServer(settings, log, max_file_size_mb=max(plan.upload_mb, settings.max_file_size_mb)) as server:
        measure = ApiMeasurement(plan, server, job_id, keys)
        await measure.collect_samples()
    return build_report(
        plan, measure.samples, measure.pages, await db.run(database.read_server_settings), settings, is_own=is_own
    )

"""The benchmark of wake-ups: the database alone and each broker in turns, the overhead of a limiter, and the report.

A broker is measured at the URL of its option, or on a temporary server if it is installed.
"""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

from tidemill.config import Settings
from tidemill.dispatch import outbox
from tidemill.dispatch.dispatchers import BrokerConnection, BrokerDispatcher, make_connection_factory
from tidemill.dispatch.outbox_relay import OutboxRelay
from tidemill.store.database import Database
from tidemill.terminal.console import error_console
from tidemill_bench import database
from tidemill_bench.broker_servers import (
    BrokerServer,
    RabbitMQServer,
    RedisServer,
    find_rabbitmq_binary,
    find_redis_binary,
)
from tidemill_bench.engine_driver import EngineDriver
from tidemill_bench.environment import Samples, run_measurement
from tidemill_bench.mill import HINT_KIND, LIMITED_KIND, PACED_KIND
from tidemill_bench.plans import DispatchBenchPlan
from tidemill_bench.processes import BenchWorker
from tidemill_bench.results import build_result, compute_spread, describe_spread

LOCAL_BROKER_TYPES: dict[str, type[BrokerServer]] = {"redis": RedisServer, "rabbitmq": RabbitMQServer}
BROKER_BINARY_FINDERS = {"redis": find_redis_binary, "rabbitmq": find_rabbitmq_binary}


@contextmanager
def start_brokers(plan: DispatchBenchPlan, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the URL of each broker by name. A broker that is not installed is reported and left out."""
    urls: dict[str, str] = {}
    with ExitStack() as stack:
        for name, server in LOCAL_BROKER_TYPES.items():
            url: str | None = getattr(plan, name)
            if url is not None:
                urls[name] = url
            elif BROKER_BINARY_FINDERS[name]() is None:
                error_console.print(f"[yellow]NOT MEASURED: {name} is not installed. Set --{name} URL[/]")
            else:
                with error_console.status(f"Starting {name}"):
                    urls[name] = stack.enter_context(server(folder / name)).url
        yield urls


LIMITER_BENCH_ITEMS, LIMITER_BENCH_ROUNDS = 2_500, 3
RATE = 1_000  # permits per second, slightly more than the items need


async def measure_limiter_overhead(
    engine: EngineDriver, worker: BenchWorker, *, items: int = LIMITER_BENCH_ITEMS, rounds: int = LIMITER_BENCH_ROUNDS
) -> dict[str, float]:
    """Return the overhead of a limiter of 1,000 per second, as a share of the time without it, and both rates."""
    seconds: dict[str, list[float]] = {PACED_KIND: [], LIMITED_KIND: []}
    for _ in range(rounds):
        for kind, taken in seconds.items():
            taken.append(await engine.process_job(await engine.submit_paused(kind, items), items, worker))
    without, at_limiter = median(seconds[PACED_KIND]), median(seconds[LIMITED_KIND])
    return {
        "limiter_overhead": round(at_limiter / without - 1, 4),
        "paced_items_per_s": round(items / without, 1),
        "limited_items_per_s": round(items / at_limiter, 1),
    }


TRANSPORT_NAMES = ("postgres", *LOCAL_BROKER_TYPES)


def build_report(
    plan: DispatchBenchPlan, samples: Mapping[str, Sequence[float]], server: dict[str, str], _: Settings, is_own: bool
) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    found = compute_figures(samples)
    used: dict[str, Any] = {name: getattr(plan, name) for name in ("jobs", "rows", "rounds", "starts", "hints")}
    missing = [name for name in LOCAL_BROKER_TYPES if f"{name}_per_s" not in samples]
    used |= {f"{name}_vs_postgres": f"NOT MEASURED: {name} is not installed" for name in missing}
    return build_result(compute_ratios(found), found, used, server, is_own)


def compute_ratios(found: Mapping[str, float]) -> dict[str, float]:
    """Return the speed with each broker ÷ the speed without one, and the overhead of a limiter."""
    measured = [name for name in LOCAL_BROKER_TYPES if f"{name}_per_s" in found]
    against = {f"{name}_vs_postgres": found[f"{name}_per_s"] / found["postgres_per_s"] for name in measured}
    return against | {"limiter_overhead": found["limiter_overhead"]}


def compute_figures(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return medians; ``wake_p50_ms`` and ``relay_10k_s`` are those of the slowest transport."""
    found = {name: statistics.median(values) for name, values in samples.items() if not name.endswith("_wake_ms")}
    for name in TRANSPORT_NAMES:
        wakes = sorted(samples.get(f"{name}_wake_ms", ()))
        if wakes:
            found[f"{name}_wake_p50_ms"] = statistics.median(wakes)
            found[f"{name}_wake_p95_ms"] = wakes[int(0.95 * (len(wakes) - 1))]
    found["wake_p50_ms"] = max(
        found[f"{name}_wake_p50_ms"] for name in TRANSPORT_NAMES if f"{name}_wake_p50_ms" in found
    )
    relayed = [value for name, value in found.items() if name.endswith("_relay_10k_s")]
    if relayed:
        found["relay_10k_s"] = max(relayed)
    found["postgres_spread"] = compute_spread(samples["postgres_per_s"])
    return found


def describe_noise(found: Mapping[str, float]) -> str | None:
    return describe_spread(found["postgres_spread"])


POSTGRES_TRANSPORT = "postgres"
BROKER_SETTING = "TIDEMILL_BROKER"

SampleLists = defaultdict[str, list[float]]


class DispatchMeasurement:
    """Collects the samples of a plan, with a worker of two processes that has one broker or none."""

    def __init__(
        self, plan: DispatchBenchPlan, db: Database, settings: Settings, engine: EngineDriver, urls: Mapping[str, str]
    ) -> None:
        self.samples: SampleLists = defaultdict(list)
        self._plan = plan
        self._db = db
        self._settings = settings
        self._made = engine.jobs
        self._urls = {POSTGRES_TRANSPORT: "", **urls}

    async def collect_samples(self) -> SampleLists:
        self._record("load_average_before", os.getloadavg()[0])
        with error_console.status("") as status:
            for number in range(self._plan.rounds):
                for name in self._urls:
                    status.update(f"Round {number + 1} of {self._plan.rounds}: {name}")
                    await self._measure_transport(name, wakes=number == 0)
            for name, url in self._urls.items():
                if url:
                    status.update(f"{self._plan.hints:,} hints through {name}")
                    await self._measure_relay(name, url)
            status.update("Overhead of a limiter")
            await self._measure_limiter()
        return self.samples

    async def _measure_transport(self, name: str, *, wakes: bool) -> None:
        await self._db.run(
            database.clear_registered_broker
        )  # of the previous round; a worker with a broker registers it
        engine = EngineDriver(self._db, self._settings, {BROKER_SETTING: self._urls[name]})
        with engine:
            jobs = [(await engine.submit_inline(self._plan.rows))[0] for _ in range(self._plan.jobs)]
            async with engine.start_warm_worker(2) as worker:
                seconds = await engine.process_jobs(jobs, self._plan.rows, worker)
                self._record(f"{name}_per_s", len(jobs) * self._plan.rows / seconds)
                for _ in range(self._plan.starts if wakes else 0):
                    self._record(f"{name}_wake_ms", (await engine.measure_start_latency(worker))[1])
        self._made += engine.jobs

    async def _measure_relay(self, name: str, url: str) -> None:
        """Measure the relay of an outbox with one hint per job, until the broker has confirmed all hints."""
        namespace = await self._db.run(outbox.register_broker_and_get_namespace, name)
        line = make_connection_factory(url, namespace, [HINT_KIND], "bench")
        dispatcher = BrokerDispatcher(line, [HINT_KIND])
        made: list[UUID] = await self._db.run(database.add_hints, HINT_KIND, self._plan.hints)
        try:
            relay = OutboxRelay(self._db, dispatcher, "bench", name)
            started = time.monotonic()
            while await relay.send_batch():
                pass
            self._record(f"{name}_relay_10k_s", (time.monotonic() - started) * 10_000 / len(made))
        finally:
            await dispatcher.close()
            await self._db.run_async_commit(database.remove_hints, HINT_KIND)
            await _drop_hint_queue(line)

    async def _measure_limiter(self) -> None:
        await self._db.run(database.clear_registered_broker)
        with EngineDriver(self._db, self._settings) as engine:
            async with engine.start_warm_worker(1) as worker:
                for name, value in (await measure_limiter_overhead(engine, worker)).items():
                    self._record(name, value)
        self._made += engine.jobs

    def _record(self, name: str, value: float) -> None:
        self.samples[name].append(value)


async def _drop_hint_queue(make_line: Callable[[], BrokerConnection]) -> None:
    """Delete the queue, because the broker may be shared."""
    line = make_line()
    await line.startup()
    await line.delete_queue(HINT_KIND)
    await line.shutdown()


def run_benchmark(plan: DispatchBenchPlan) -> dict[str, Any]:
    """Run the benchmark of wake-ups; return its report."""

    async def collect_samples(db: Database, settings: Settings, engine: EngineDriver) -> Samples:
        with start_brokers(plan, settings.home) as urls:
            try:
                return await DispatchMeasurement(plan, db, settings, engine, urls).collect_samples()
            finally:
                await db.run(database.clear_registered_broker)

    return run_measurement(collect_samples, lambda *found: build_report(plan, *found))

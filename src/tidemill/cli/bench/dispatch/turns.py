"""The database alone, and with each broker, in turns."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from uuid import UUID

from tidemill.cli.bench.dispatch.plan import Plan
from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.limiter import limiter_overhead
from tidemill.cli.bench.mill import HINT
from tidemill.cli.views import errors
from tidemill.config import Settings
from tidemill.dispatch.line import Line
from tidemill.dispatch.relay import Relay
from tidemill.dispatch.taskiq import BrokerDispatcher, line_maker
from tidemill.store import bench, outbox
from tidemill.store.database import Database

POSTGRES = "postgres"
BROKER = "TIDEMILL_BROKER"

Samples = defaultdict[str, list[float]]


class Turns:
    """Takes every sample of a plan, each turn with a worker of two processes that has one broker or none."""

    def __init__(self, plan: Plan, db: Database, settings: Settings, engine: Engine, urls: Mapping[str, str]) -> None:
        self.samples: Samples = defaultdict(list)
        self._plan = plan
        self._db = db
        self._settings = settings
        self._made = engine.jobs
        self._urls = {POSTGRES: "", **urls}

    async def take(self) -> Samples:
        self._note("load_average_before", os.getloadavg()[0])
        with errors.status("") as status:
            for number in range(self._plan.rounds):
                for name in self._urls:
                    status.update(f"round {number + 1} of {self._plan.rounds}: {name}")
                    await self._turn(name, wakes=number == 0)
            for name, url in self._urls.items():
                if url:
                    status.update(f"{self._plan.hints:,} hints through {name}")
                    await self._relay(name, url)
            status.update("a limiter that holds nobody back")
            await self._limit()
        return self.samples

    async def _turn(self, name: str, *, wakes: bool) -> None:
        await self._db.run(bench.forget_broker)  # of the turn before; a worker that has one says so
        engine = Engine(self._db, self._settings, {BROKER: self._urls[name]})
        with engine:
            jobs = [(await engine.submit_inline(self._plan.rows))[0] for _ in range(self._plan.jobs)]
            async with engine.worker(2) as worker:
                seconds = await engine.process_all(jobs, self._plan.rows, worker)
                self._note(f"{name}_per_s", len(jobs) * self._plan.rows / seconds)
                for _ in range(self._plan.starts if wakes else 0):
                    self._note(f"{name}_wake_ms", (await engine.start_latency(worker))[1])
        self._made += engine.jobs

    async def _relay(self, name: str, url: str) -> None:
        """An outbox full of hints, each of a job of its own, until the broker has confirmed them all."""
        namespace = await self._db.run(outbox.register, name)
        line = line_maker(url, namespace, [HINT], "bench")
        dispatcher = BrokerDispatcher(line, [HINT])
        made: list[UUID] = await self._db.run(bench.add_hints, HINT, self._plan.hints)
        try:
            relay = Relay(self._db, dispatcher, "bench", name)
            started = time.monotonic()
            while await relay.send():
                pass
            self._note(f"{name}_relay_10k_s", (time.monotonic() - started) * 10_000 / len(made))
        finally:
            await dispatcher.close()
            await self._db.run(bench.remove_hints, HINT)
            await _empty(line)

    async def _limit(self) -> None:
        await self._db.run(bench.forget_broker)
        with Engine(self._db, self._settings) as engine:
            async with engine.worker(1) as worker:
                for name, value in (await limiter_overhead(engine, worker)).items():
                    self._note(name, value)
        self._made += engine.jobs

    def _note(self, name: str, value: float) -> None:
        self.samples[name].append(value)


async def _empty(make_line: Callable[[], Line]) -> None:
    """Nothing of ours stays in a broker that others use."""
    line = make_line()
    await line.startup()
    await line.drop(HINT)
    await line.shutdown()

"""Taking every sample of a plan."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from uuid import UUID

from tidemill.cli.bench.service import upload
from tidemill.cli.bench.service.crowd import Crowd
from tidemill.cli.bench.service.http import Answer, Client
from tidemill.cli.bench.service.places import Place, find_places
from tidemill.cli.bench.service.plan import Plan
from tidemill.cli.bench.service.server import BenchServer
from tidemill.cli.views import errors

WARM_UP = 2  # rounds before it counts: statements are prepared, pages of the database are in memory
BARE = "/v1/me"  # who asks: what every request costs before it does anything
PAGES_PER_LOOK = 5  # then one look at the job, and one bare request

Samples = defaultdict[str, list[float]]
Upload = Callable[[Client, int], Awaitable[Answer]]


class Measure:
    """Samples by name: milliseconds, megabytes, counts. ``pages`` are those of pages, by filter and depth."""

    def __init__(self, plan: Plan, server: BenchServer, job_id: UUID, keys: Sequence[str]) -> None:
        self.samples: Samples = defaultdict(list)
        self.pages: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._plan = plan
        self._server = server
        self._job_id = job_id
        self._keys = keys

    async def take(self) -> None:
        plan = self._plan
        self._note("load_average_before", os.getloadavg()[0])
        with errors.status("looking for pages") as status:
            async with Client(self._server.place, *self._keys) as client:
                places = await find_places(client, self._job_id)
                status.update(f"{len(places)} kinds of pages of {plan.items:,} items")
                await self._pages(client, places)
            status.update(f"{plan.clients} clients for {plan.seconds:g} s")
            await self._crowd()
            for way in (upload.as_body, upload.as_form):
                status.update(f"an upload of {plan.upload_mb} MB {way.__name__.replace('_', ' ')}")
                await self._upload(way)

    async def _pages(self, client: Client, places: Sequence[Place]) -> None:
        """Round after round over all of them, so that a bad moment of the machine hits all alike."""
        for number in range(WARM_UP + self._plan.rounds):
            if number == WARM_UP:
                self.pages.clear()
                self.samples["job_ms"].clear()
                self.samples["bare_ms"].clear()
            for n, place in enumerate(places):
                answer = await client.get(place.path)
                answer.value  # noqa: B018  raises if it was refused
                self.pages[place.filter, place.depth].append(answer.ms)
                if n % PAGES_PER_LOOK == 0:
                    self._note("job_ms", (await client.get(f"/v1/jobs/{self._job_id}")).ms)
                    self._note("bare_ms", (await client.get(BARE)).ms)

    async def _crowd(self) -> None:
        plan = self._plan
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client(self._server.place, key)) for key in self._keys]
            crowd = Crowd(self._job_id, plan.seconds)
            cpu = self._server.cpu_seconds()
            running = asyncio.create_task(crowd.run(clients[: plan.pollers], clients[plan.pollers :]))
            await asyncio.wait([running], timeout=plan.seconds / 2)
            before = self._server.rss_mb()
            self._note("api_rss_mb", await self._server.peak_rss_mb(running))
            await running
        self._note("api_cpu", (self._server.cpu_seconds() - cpu) / plan.seconds)
        self._note("api_rss_growth_mb", self._server.rss_mb() - before)
        self.samples["api_ms"] = crowd.answers
        self._note("api_requests", len(crowd.answers))
        self._note("api_errors", len(crowd.errors))
        for line in crowd.errors[:3]:
            errors.print(line, highlight=False, markup=False)

    async def _upload(self, way: Upload) -> None:
        before = self._server.rss_mb()
        async with Client(self._server.place, self._keys[0]) as client:
            running = asyncio.create_task(_until_done(way(client, self._plan.upload_mb)))
            peak = await self._server.peak_rss_mb(running)
            answer = await running
        answer.value  # noqa: B018  raises if it was refused
        self._note("upload_rss_growth_mb", peak - before)
        self._note(f"upload_{way.__name__}_mb_per_s", self._plan.upload_mb / answer.ms * 1000)

    def _note(self, name: str, value: float) -> None:
        self.samples[name].append(value)


async def _until_done(asked: Awaitable[Answer]) -> Answer:
    return await asked

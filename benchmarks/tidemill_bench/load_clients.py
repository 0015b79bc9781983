"""Load by many processes: fifty workers on one database, and a thousand API clients while a job is processed."""

import asyncio
import itertools
import resource
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from uuid import UUID

from tidemill.core.errors import TidemillError
from tidemill.store import job_lifecycle
from tidemill_bench import database
from tidemill_bench.api import compute_quantile
from tidemill_bench.claim_recorder import read_claims
from tidemill_bench.http_client import RawHttpClient
from tidemill_bench.kinds import BRIEF_KIND
from tidemill_bench.load_scene import LoadScene, sample_memory
from tidemill_bench.mill import NOOP_KIND, PACED_KIND
from tidemill_bench.processes import BenchServer

MANY_WORKERS_ENVIRONMENT = {"TIDEMILL_CLAIM_MAX": "20"}  # so that there are many claims
CONNECTION_SAMPLE_S = 1.0
DRAIN_ITEMS_PER_S = 4_000  # more than two processes run of the kind
DESCRIPTORS_PER_CLIENT, OTHER_DESCRIPTORS = 1, 200


async def measure_many_workers(scene: LoadScene) -> None:
    """Measure claims of many worker processes on one job whose items wait for 10 ms each."""
    plan, connections = scene.plan, [0.0]
    job_id = await scene.submit_paused(BRIEF_KIND, plan.worker_items)
    async with scene.start_workers(plan.workers, plan.children, MANY_WORKERS_ENVIRONMENT) as (workers, claims):
        started = await scene.resume(job_id)
        counting = asyncio.create_task(_count_connections(scene, connections))
        points = await scene.drain(job_id, workers)
        counting.cancel()
        await asyncio.wait([counting])
        sample_memory(workers)
    recorded = read_claims(claims, started)
    scene.figures |= {
        "workers_claims_per_s": recorded.per_s,
        "workers_claim_p50_ms": statistics.median(recorded.durations_ms),
        "workers_claim_p99_ms": compute_quantile(recorded.durations_ms, 0.99),
        "workers_false_idle_percent": recorded.false_idle_percent,
        "workers_items_per_s": plan.worker_items / points[-1][0],
        "workers_connections": max(connections),
    }
    await scene.delete_jobs(job_id)


async def _count_connections(scene: LoadScene, counts: list[float]) -> None:
    while True:
        counts.append(await scene.db.run(database.count_connections))
        await asyncio.sleep(CONNECTION_SAMPLE_S)


async def measure_many_clients(scene: LoadScene) -> None:
    """Measure the responses to clients with persistent connections, while two processes run a job."""
    plan = scene.plan
    raise_descriptor_limit(DESCRIPTORS_PER_CLIENT * plan.clients + OTHER_DESCRIPTORS)
    job_id = await scene.submit_paused(PACED_KIND, int(DRAIN_ITEMS_PER_S * plan.client_s))
    async with AsyncExitStack() as stack:
        [worker], _ = await stack.enter_async_context(scene.start_workers())
        server = await stack.enter_async_context(BenchServer(scene.settings, scene.settings.home / "serve.log"))
        keys = itertools.cycle(scene.keys)
        clients = [
            await stack.enter_async_context(RawHttpClient(server.place, next(keys))) for _ in range(plan.clients)
        ]
        await scene.resume(job_id)
        load = ManyClients(scene, job_id)
        running = asyncio.create_task(load.run(clients))
        peak = await server.peak_rss_mb(running)
        await running
        worker.sample_memory()
        await scene.db.run(job_lifecycle.cancel_job, job_id)
        await scene.drain(job_id, [worker])
    scene.figures |= {
        "clients_p50_ms": statistics.median(load.durations_ms),
        "clients_p99_ms": compute_quantile(load.durations_ms, 0.99),
        "clients_requests": len(load.durations_ms),
        "clients_errors": len(load.errors),
        "clients_rss_mb": peak,
    }
    await scene.delete_jobs(job_id, *load.jobs)


class ManyClients:
    """Clients that send a bounded number of requests per second together: three reads, then a submission."""

    def __init__(self, scene: LoadScene, job_id: UUID) -> None:
        self.durations_ms: list[float] = []
        self.errors: list[str] = []
        self.jobs: list[UUID] = []
        self._seconds = scene.plan.client_s
        self._interval_s = scene.plan.clients / scene.plan.client_requests_per_s
        self._paths = (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/items?page_size=100", "/v1/jobs?page_size=20", "")

    async def run(self, clients: Sequence[RawHttpClient]) -> None:
        deadline = time.monotonic() + self._seconds
        async with asyncio.TaskGroup() as group:
            for number, client in enumerate(clients):
                group.create_task(self._run_client(client, number, self._interval_s * number / len(clients), deadline))

    async def _run_client(self, client: RawHttpClient, number: int, delay_s: float, deadline: float) -> None:
        due = time.monotonic() + delay_s
        for path in itertools.islice(itertools.cycle(self._paths), number, None):
            if due > deadline:
                return
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += self._interval_s
            try:
                await self._send_request(client, path)
            except (TidemillError, OSError, EOFError, TimeoutError) as error:
                self.errors.append(repr(error))
                return

    async def _send_request(self, client: RawHttpClient, path: str) -> None:
        if path:
            response = await client.get(path)
            response.checked_json  # noqa: B018  raises if the request failed
        else:
            response = await client.post("/v1/jobs", {"kind": NOOP_KIND, "inputs": [1, 2, 3]})
            self.jobs.append(UUID(response.checked_json["id"]))
        self.durations_ms.append(response.ms)


def raise_descriptor_limit(wanted: int) -> None:
    """Raise the limit of open files of this process if it is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted and soft != resource.RLIM_INFINITY:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

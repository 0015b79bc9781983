"""Load of large jobs: the cost of ten million items, small jobs beside a huge one, and a snapshot that is held."""

import asyncio
import statistics
import time
from uuid import UUID

import psycopg

from tidemill.store import job_lifecycle
from tidemill_bench import database
from tidemill_bench.api import compute_quantile
from tidemill_bench.claim_recorder import read_claims
from tidemill_bench.engine_driver import EngineDriver
from tidemill_bench.load_scene import LoadScene, Points, compute_rates, compute_tenth_rates
from tidemill_bench.mill import NOOP_KIND, PACED_KIND, STAMP_KIND
from tidemill_bench.processes import BenchWorker
from tidemill_bench.sample_rows import write_ndjson_file

SMALL_CLAIMS = {"TIDEMILL_CLAIM_MAX": "20"}  # so that claims limit the rate
SMALL_JOB_INTERVAL_S = 0.25
SMALL_JOB_TIMEOUT_S = 120.0
SMALL_JOB_POLL_S = 0.02
SNAPSHOT_SAMPLE_S = 0.5


async def measure_big_job(scene: LoadScene) -> None:
    """Compare the cost per item of a large and of a small job, from a file to the end, with two processes."""
    plan, found = scene.plan, scene.figures
    with EngineDriver(scene.db, scene.settings) as engine:
        costs = [await _measure_file_job(scene, engine, plan.small_items) for _ in range(plan.small_rounds)]
        found["job_small_us_per_item"] = statistics.median(costs)
        found["job_us_per_item"] = await _measure_file_job(scene, engine, plan.items, is_large=True)


async def _measure_file_job(scene: LoadScene, engine: EngineDriver, n: int, *, is_large: bool = False) -> float:
    """Return the microseconds per item to ingest and process a job; of the large job, record all figures."""
    file = await asyncio.to_thread(write_ndjson_file, scene.settings.home, n)
    job_id, ingest_s = await engine.ingest_file(file)
    memory: Points = []
    async with scene.start_workers() as ([worker], claims):
        started = await scene.resume(job_id)
        points = await scene.drain(
            job_id, [worker], lambda: memory.append((time.monotonic() - started, worker.child_rss_mb))
        )
    seconds = await scene.db.run(database.read_processing_seconds, job_id)
    if is_large:
        first, last = compute_tenth_rates(points)
        durations = read_claims(claims, started).durations_ms
        scene.figures |= {
            "job_ingest_per_s": n / ingest_s,
            "job_items_per_s": n / seconds,
            "job_first_tenth_per_s": first,
            "job_last_tenth_per_s": last,
            "job_claim_p50_ms": statistics.median(durations),
            "job_claim_p99_ms": compute_quantile(durations, 0.99),
            "job_rss_mb": worker.child_rss_mb,
            "job_rss_parent_mb": worker.parent_rss_mb,
        }
        scene.series["job"] = {"items_per_s": compute_rates(points), "rss_mb": memory}
    await scene.delete_jobs(job_id)
    file.unlink()
    return (ingest_s + seconds) / n * 1e6


async def measure_small_beside_huge_job(scene: LoadScene) -> None:
    """Measure the start of small jobs of one user, while a huge job of another user keeps two processes busy."""
    latencies: list[float] = []
    huge = await scene.submit_paused(PACED_KIND, scene.plan.huge_items)
    async with scene.start_workers() as ([worker], _):
        await scene.resume(huge)
        while not await scene.count_settled(huge):
            worker.sample_memory()
            await asyncio.sleep(SMALL_JOB_POLL_S)
        small: list[UUID] = []
        for _ in range(scene.plan.small_jobs):
            latencies.append(await _measure_start_ms(scene, worker, small))
            await asyncio.sleep(SMALL_JOB_INTERVAL_S)
        await scene.db.run(job_lifecycle.cancel_job, huge)
        await scene.drain(huge, [worker])
    scene.figures |= {
        "small_job_start_p50_ms": statistics.median(latencies),
        "small_job_start_p99_ms": compute_quantile(latencies, 0.99),
    }
    await scene.delete_jobs(huge, *small)


async def _measure_start_ms(scene: LoadScene, worker: BenchWorker, jobs: list[UUID]) -> float:
    """Return the milliseconds from the submission of a job of one item to the start of its handler."""
    called = time.monotonic_ns()
    job_id = await scene.submit(STAMP_KIND, [None], owner=1)
    jobs.append(job_id)
    async with asyncio.timeout(SMALL_JOB_TIMEOUT_S):
        while not await scene.db.run(database.is_job_closed, job_id):
            worker.sample_memory()
            await asyncio.sleep(SMALL_JOB_POLL_S)
    [result] = await scene.db.run(database.read_job_results, job_id)
    return float(result["ns"] - called) / 1e6


async def measure_held_snapshot(scene: LoadScene) -> None:
    """Measure the rate of small claims while a transaction holds a snapshot, so that no vacuum removes dead rows."""
    plan, points = scene.plan, [(0.0, 0.0)]
    job_id = await scene.submit_paused(NOOP_KIND, int(plan.snapshot_s * plan.snapshot_items_per_s))
    async with scene.start_workers(environment=SMALL_CLAIMS) as ([worker], claims):
        with psycopg.connect(scene.db.url, application_name="tidemill bench") as held:
            held.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            held.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            held.execute("SELECT count(*) FROM tidemill.job")
            dead = await scene.db.run(database.count_dead_tuples)
            started = await scene.resume(job_id)
            while points[-1][0] < plan.snapshot_s and not await scene.db.run(database.is_job_closed, job_id):
                await asyncio.sleep(SNAPSHOT_SAMPLE_S)
                worker.sample_memory()
                points.append((time.monotonic() - started, await scene.count_settled(job_id)))
            scene.figures["snapshot_dead_tuples"] = await scene.db.run(database.count_dead_tuples) - dead
        if not await scene.db.run(database.is_job_closed, job_id):
            await scene.db.run(job_lifecycle.cancel_job, job_id)
            await scene.drain(job_id, [worker])
    rates = compute_rates(points, 10)
    recorded = read_claims(claims, started)
    scene.figures |= {
        "snapshot_held_s": points[-1][0],
        "snapshot_first_tenth_per_s": rates[0][1],
        "snapshot_last_tenth_per_s": rates[-1][1],
        "snapshot_claims": len(recorded.durations_ms),
        "snapshot_claim_p99_ms": compute_quantile(recorded.durations_ms, 0.99),
    }
    scene.series["snapshot"] = {"items_per_s": compute_rates(points)}
    await scene.delete_jobs(job_id)

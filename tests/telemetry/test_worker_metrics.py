"""Tests of the metrics of real workers, including children that were killed."""

import os
import signal

import pytest

from support import add_job, closed, eventually
from telemetry.recorded_events import Logged
from tidemill.store.database import Database

HANDLER = """
    mill.limiter("shop", concurrency=1000)

    @mill.handler("test", max_attempts=1, limit="shop", concurrency=20)
    async def run(item):
        await asyncio.sleep(0.02)
        if item.input["n"] % 10 == 0:
            raise Fail("no", code="a code of our own")
"""


async def test_worker_metrics_keep_counts_of_killed_children(logged: Logged, db: Database) -> None:
    logged.app(HANDLER)
    worker = logged.start(processes=2, log_level="info", metrics_port=0, batch_size=10, claim_max=100)
    job_id = await add_job(db, 800, batch_size=100)

    await closed(db, job_id)

    async def all_counted() -> bool:
        seen = await logged.metrics()
        told = seen.get(("tidemill_jobs_closed_total", ("completed_with_errors", "test")))
        # Events of a child go through a pipe: on a busy machine they may arrive after those of the parent.
        return bool(told) and seen.get(("tidemill_items_total", ("test", "done"))) == 720

    await eventually(all_counted)
    # Kill the child only now: events that it has not sent yet would be lost.
    os.kill(logged.children(worker)[0], signal.SIGKILL)

    async def is_dead() -> bool:
        return ("tidemill_children_died_total", ("killed",)) in await logged.metrics()

    async def is_latency_reported() -> bool:  # reported about once a second: the job may take less time
        return ("tidemill_db_latency_ewma_ms", ()) in await logged.metrics()

    await eventually(is_dead)
    await eventually(is_latency_reported)
    assert await all_counted()
    seen = await logged.metrics()
    assert seen["tidemill_failures_total", ("other", "test")] == 80
    assert seen["tidemill_children_died_total", ("killed",)] == 1
    assert seen["tidemill_error_rate", ("test",)] == pytest.approx(0.1, abs=0.08)
    assert seen["tidemill_db_latency_ewma_ms", ()] > 0
    assert ("tidemill_queue_depth", ("pending",)) in seen, "the only worker does maintenance"
    assert seen["tidemill_claim_items_count", ("test",)] > 8
    worker.terminate()
    assert worker.wait(20) == 0


async def test_worker_metrics_show_adaptive_state(logged: Logged, db: Database) -> None:
    logged.app(HANDLER)
    logged.start(log_level="info", metrics_port=0)
    await closed(db, await add_job(db, 20))

    async def shown() -> bool:
        seen = await logged.metrics()
        names = ("tidemill_lease_seconds", "tidemill_retry_spacing")
        return all(seen.get((name, ("0", "test")), 0) >= 1 for name in names) and (
            ("tidemill_pressure", ("0", "memory")) in seen
        )

    await eventually(shown)


async def test_worker_metrics_use_next_port_when_port_is_taken(logged: Logged) -> None:
    logged.app(HANDLER)
    logged.start(log_level="info", metrics_port=0)
    first = await logged.said("metrics.served")
    logged.start(log_level="info", metrics_port=first["port"], metrics_path="/inner/metrics")
    second = await logged.said("metrics.served", worker=1)
    assert first["port"] < second["port"]
    assert first["worker"] != second["worker"]
    assert ("tidemill_events_lost_total", ()) in await logged.metrics(worker=1, path="/inner/metrics")
    assert (await logged.page(worker=1))[0] == 404


async def test_worker_opens_no_metrics_port_when_metrics_are_disabled(logged: Logged, db: Database) -> None:
    logged.app(HANDLER)
    logged.start(log_level="info", enable_metrics=False, metrics_port=0)
    await closed(db, await add_job(db, 10))
    assert not [line for line in logged.lines() if line["event"] == "metrics.served"]

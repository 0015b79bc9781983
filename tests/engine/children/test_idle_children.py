"""Tests of children without a slice: they send no queries and do not outlive their parent."""

import asyncio
import contextlib
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from engine.children.scenes import NAP, Start, begin, children, finish_in_slices, in_hand, ready
from support import Workers, add_job, assert_sound, eventually, fates, job_of, rows
from tidemill.app.worker import Worker
from tidemill.core.status import JobStatus
from tidemill.store import job_lifecycle
from tidemill.store.database import Database

SERVER = """
import asyncio, sys
from uuid import UUID
from tidemill.app.bootstrap import load_mill
from tidemill.store.open_database import open_database
from tidemill.app.worker import make_worker
from tidemill.core.errors import Busy

async def main():
    mill = load_mill("app:mill")
    async with open_database(mill.settings) as db:
        worker = make_worker(db, mill, "app:mill", 1, on_demand=True)
        await worker.start()
        while True:
            try:
                await worker.kickoff(UUID(sys.argv[1]), "test", 60)
            except Busy:
                print("not yet", file=sys.stderr)

asyncio.run(main())
"""


async def heartbeats(db: Database, n: int) -> None:
    """Wait until the worker has sent a number of heartbeats."""
    seen: set[datetime] = set()

    async def look() -> bool:
        seen.update(at for (at,) in await rows(db, "SELECT seen_at FROM tidemill.worker"))
        return len(seen) > n

    await eventually(look)


async def test_idle_on_demand_children_run_no_queries_and_use_little_cpu(start: Start, tidemill_database: str) -> None:
    worker = await start(NAP, processes=2)
    sessions = (
        "SELECT pid, state, query, state_change FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'tidemill' ORDER BY pid"
    )
    async with Database(tidemill_database, name="the test") as db:
        await ready(worker)
        job_id = await add_job(db, 10)
        await heartbeats(db, 1)
        before, used = await rows(db, sessions), cpu_seconds(worker)
        assert len(before) >= 2, "each has an open connection"
        await db.run(job_lifecycle.pause_job, job_id)
        await db.run(job_lifecycle.resume_job, job_id)  # notifies all workers
        await heartbeats(db, 3)
        assert await rows(db, sessions) == before
        assert cpu_seconds(worker) - used < 0.5
        assert (await job_of(db, job_id)).counts.pending == 10, "no slice was requested"


def cpu_seconds(worker: Worker) -> float:
    times: list[Any] = [psutil.Process(pid).cpu_times() for pid in children(worker)]
    return float(sum(each.user + each.system for each in times))


async def test_on_demand_worker_is_registered_and_holds_leases(start: Start, db: Database) -> None:
    worker = await start("""
        @mill.handler("test")
        async def run(item):
            await asyncio.sleep(0.2)
    """)
    job_id = await add_job(db, 200)
    await heartbeats(db, 1)
    assert await rows(db, "SELECT id, info->'on_demand' FROM tidemill.worker") == [(worker.id, True)]
    holders = "SELECT DISTINCT worker FROM tidemill.batch WHERE job_id = %s AND state = 'leased'"

    async def leased() -> bool:
        return await rows(db, holders, job_id) == [(worker.id,)]

    slice_ = begin(worker, job_id, 60.0)
    await eventually(leased)
    slice_.cancel()


async def test_on_demand_worker_finishes_cancellation_without_slices(start: Start, db: Database) -> None:
    await start(NAP)
    job_id = await add_job(db, 100)
    await db.run(job_lifecycle.cancel_job, job_id)

    async def is_cancelled() -> bool:
        return (await job_of(db, job_id)).status is JobStatus.CANCELLED

    await eventually(is_cancelled)
    await assert_sound(db)


async def test_on_demand_children_exit_with_killed_parent_and_next_pool_takes_over(
    start: Start, workers: Workers, db: Database, tmp_path: Path
) -> None:
    workers.app(NAP)
    job_id = await add_job(db, 2_000)
    (tmp_path / "server.py").write_text(SERVER)
    server = await asyncio.create_subprocess_exec(
        sys.executable, "server.py", str(job_id), cwd=tmp_path, env=workers.env()
    )
    try:
        await in_hand(db, job_id)
        orphans = [child.pid for child in psutil.Process(server.pid).children()]
        assert orphans
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.kill()
        await asyncio.wait_for(server.wait(), 30)

    async def they_are_gone() -> bool:
        return not any(psutil.pid_exists(pid) for pid in orphans)

    await eventually(they_are_gone, 15.0)
    worker = await start(NAP)
    await finish_in_slices(worker, job_id, 2.0)
    assert await fates(db, job_id) == {("done", None, 1): 2_000}
    await assert_sound(db)

"""Tests of SIGTERM: items finish or are released in time, uncharged, and the next worker continues."""

import asyncio
import subprocess
import time
from uuid import UUID

import pytest

from support import Workers, add_job, assert_sound, closed, eventually, fates, job_of, rows
from tidemill.store.database import Database

GRACE_S = 1.0
SOON_S = GRACE_S + 20.0  # the grace period, 5 s until a child is killed, and time for a slow machine

OBEDIENT = "open('started', 'w').close(); await asyncio.sleep(0.2)"
LONG = "await asyncio.sleep(0.05 if os.path.exists('second') else 60)"
BLOCKING = "time.sleep(0.05 if os.path.exists('second') else 60)"
DEAF = """
        while not os.path.exists('second'):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
"""


def app(body: str, declare: str = "async def run(item)") -> str:
    return f"""
    @mill.handler("test", concurrency=10, timeout=300)
    {declare}:
        {body.strip()}
    """


async def in_hand(db: Database, job_id: UUID) -> None:
    async def look() -> int:
        return (await job_of(db, job_id)).counts.processing

    await eventually(look)


async def reached(workers: Workers) -> None:
    """Wait until the handler has started: a claimed item may not have started yet."""

    async def look() -> bool:
        return (workers._folder / "reached").exists()

    await eventually(look)


async def stopped(process: "subprocess.Popen[bytes]") -> float:
    """Send SIGTERM; return the seconds until the worker stopped."""
    started = time.monotonic()
    process.terminate()
    assert await asyncio.to_thread(process.wait, 30) == 0
    return time.monotonic() - started


async def assert_taken_over(workers: Workers, db: Database, job_id: UUID, n: int) -> None:
    """Check that no lease is left and a second worker finishes the job with one attempt per item."""
    assert await rows(db, "SELECT id FROM tidemill.batch WHERE state = 'leased'") == []
    assert await rows(db, "SELECT id FROM tidemill.worker") == []
    job = await job_of(db, job_id)
    assert job.counts.is_consistent
    assert job.counts.processing == 0
    await assert_sound(db)
    (workers._folder / "second").touch()
    workers.start()
    await closed(db, job_id)
    assert await fates(db, job_id) == {("done", None, 1): n}
    await assert_sound(db)


async def test_shutdown_finishes_quick_items_and_releases_remaining_ones(workers: Workers, db: Database) -> None:
    workers.app(app(OBEDIENT))
    process = workers.start(worker_lanes=1, stop_grace_ms=20_000, flush_interval_ms=60_000)
    job_id = await add_job(db, 200)

    async def items_are_started() -> bool:
        return (workers._folder / "started").exists()

    await eventually(items_are_started)
    assert await stopped(process) < 20.0
    assert 10 <= (await job_of(db, job_id)).counts.done < 200
    await assert_taken_over(workers, db, job_id, 200)


@pytest.mark.parametrize(
    ("body", "declare"),
    [
        (LONG, "async def run(item)"),
        (DEAF, "async def run(item)"),
        (BLOCKING, "def run(item)"),
        (BLOCKING, "async def run(item)"),
    ],
    ids=["sleeping", "deaf", "blocking", "hogging"],
)
async def test_shutdown_releases_slow_items_without_charging_attempts(
    body: str, declare: str, workers: Workers, db: Database
) -> None:
    workers.app(app(body, declare))
    process = workers.start(stop_grace_ms=int(GRACE_S * 1000))
    job_id = await add_job(db, 40)
    await in_hand(db, job_id)
    assert await stopped(process) < SOON_S
    await assert_taken_over(workers, db, job_id, 40)


async def test_shutdown_releases_slow_batch_without_charging_attempts(workers: Workers, db: Database) -> None:
    workers.app("""
        @mill.batch_handler("test", timeout=300)
        async def run(items):
            await asyncio.sleep(0 if os.path.exists("second") else 60)
    """)
    process = workers.start(stop_grace_ms=int(GRACE_S * 1000))
    job_id = await add_job(db, 40)
    await in_hand(db, job_id)
    assert await stopped(process) < SOON_S
    await assert_taken_over(workers, db, job_id, 40)


async def test_shutdown_keeps_finished_items_when_stuck_child_is_killed(workers: Workers, db: Database) -> None:
    last = "if item.input['n'] == 9:\n            open('reached', 'w').close()"
    workers.app(app(f"if item.input['n'] == 3:\n            {BLOCKING}\n        {last}", "def run(item)"))
    process = workers.start(stop_grace_ms=int(GRACE_S * 1000), flush_interval_ms=60_000)
    job_id = await add_job(db, 40)
    await reached(workers)
    assert await stopped(process) < SOON_S
    assert (await job_of(db, job_id)).counts.done > 0
    await assert_taken_over(workers, db, job_id, 40)

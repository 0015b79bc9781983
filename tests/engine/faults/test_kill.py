"""Tests of SIGKILL to children, parents and ingesters: no item is lost, duplicated or charged."""

import asyncio
import os
import random
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from support import Workers, add_job, assert_sound, closed, eventually, fates, job_of, rows
from tidemill.config import Settings
from tidemill.core.input_source import SourceReference
from tidemill.files.blobs import open_blob_store
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async

SLOW = """
    @mill.handler("test", concurrency=20)
    async def run(item):
        await asyncio.sleep(0.05)
"""
# Writes a line per finished item; item 70 kills its own process at its first attempt.
LEDGER = """
    import signal
    ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @mill.handler("test", concurrency=10{options})
    async def run(item):
        n = item.input["n"]
        await asyncio.sleep(0.01 + n % 7 / 500)
        if n == 70 and not os.path.exists("killed"):
            open("killed", "x").close()
            os.kill(os.getpid() if {child} else os.getppid(), signal.SIGKILL)
            await asyncio.sleep(0.5)
        os.write(ledger, b"%d\\n" % n)
"""


def finished(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "ledger").read_text().split()]


async def test_killed_children_charge_no_attempts(workers: Workers, db: Database) -> None:
    workers.app(SLOW)
    process = workers.start(processes=2)
    job_id = await add_job(db, 3_000)
    rng = random.Random(1)
    for _ in range(5):

        async def work_goes_on(seen: int = (await job_of(db, job_id)).counts.done) -> bool:
            return (await job_of(db, job_id)).counts.done > seen and len(workers.children(process)) == 2

        await eventually(work_goes_on)
        os.kill(rng.choice(workers.children(process)), signal.SIGKILL)
    await closed(db, job_id)
    assert await fates(db, job_id) == {("done", None, 1): 3_000}
    await assert_sound(db)


async def test_children_exit_when_parent_is_killed_and_next_worker_takes_over(workers: Workers, db: Database) -> None:
    workers.app(SLOW)
    process = workers.start(processes=2)
    job_id = await add_job(db, 2_000)

    async def under_way() -> int:
        return (await job_of(db, job_id)).counts.done

    await eventually(under_way)
    children = workers.children(process)
    process.kill()

    async def orphans_are_gone() -> bool:
        return not any(psutil.pid_exists(pid) for pid in children)

    await eventually(orphans_are_gone, 15.0)
    workers.start()
    await closed(db, job_id)
    assert await fates(db, job_id) == {("done", None, 1): 2_000}
    await assert_sound(db)


async def test_child_blocking_event_loop_exits_when_parent_is_killed(workers: Workers, db: Database) -> None:
    workers.app("""
        @mill.handler("test", timeout=None)
        async def run(item):
            open("hogging", "w").close()
            while True:
                pass
    """)
    process = workers.start()
    await add_job(db, 1)
    folder = workers._folder

    async def hogging() -> bool:
        return (folder / "hogging").exists()

    await eventually(hogging)
    (child,) = workers.children(process)
    process.kill()

    async def is_gone() -> bool:
        return not psutil.pid_exists(child)

    await eventually(is_gone, 20.0)


@pytest.mark.parametrize("options", ["", ", flush_size=1"], ids=["default", "flush_size-1"])
async def test_parent_salvages_finished_items_of_killed_child(
    options: str, workers: Workers, db: Database, tmp_path: Path
) -> None:
    workers.app(LEDGER.format(options=options, child=True))
    workers.start(flush_interval_ms=60_000, worker_lanes=1)
    job_id = await add_job(db, 400)
    await closed(db, job_id)
    assert (tmp_path / "killed").exists()
    assert sorted(finished(tmp_path)) == list(range(400))
    assert await fates(db, job_id) == {("done", None, 1): 400}
    await assert_sound(db)


async def test_flush_size_one_runs_no_item_twice_when_parent_is_killed(
    workers: Workers, db: Database, tmp_path: Path
) -> None:
    workers.app(LEDGER.format(options=", flush_size=1", child=False))
    process = workers.start(worker_lanes=1)
    job_id = await add_job(db, 400)
    await asyncio.to_thread(process.wait, 30)
    workers.start(worker_lanes=1)
    await closed(db, job_id)
    # The orphan flushes its finished items: no item ran twice, although its parent was dead.
    assert sorted(finished(tmp_path)) == list(range(400))
    assert await fates(db, job_id) == {("done", None, 1): 400}
    await assert_sound(db)


async def test_ingest_resumes_after_kill_without_lost_or_duplicate_rows(
    workers: Workers, db: Database, settings: Settings
) -> None:
    n = 60_000
    blob = open_blob_store(settings.blobs).put(b'{"n": %d}\n' % i for i in range(n))
    workers.app("""
        @mill.handler("test")
        async def run(item):
            return item.input["n"]
    """)
    process = workers.start(ingest_max_rows=500)
    async with db.transaction() as conn:
        source = SourceReference(blob=blob.id, format="ndjson")
        job_id = (await run_steps_async(conn, build_submission_steps(Submission("test", source=source), ())))[0]
    for kill_parent in (False, True, False):
        before = (await job_of(db, job_id)).counts.total

        async def reading_on(before: int = before, parent: "subprocess.Popen[bytes]" = process) -> bool:
            return (await job_of(db, job_id)).counts.total > before and bool(workers.children(parent))

        await eventually(reading_on)
        os.kill(process.pid if kill_parent else workers.children(process)[0], signal.SIGKILL)
        process = workers.start(ingest_max_rows=500) if kill_parent else process
    job = await closed(db, job_id)
    assert (job.counts.total, job.counts.done) == (n, n)
    wrong = "SELECT count(*) FROM tidemill.outcome WHERE job_id = %s AND result::text::bigint <> seq"
    assert await rows(db, wrong, job_id) == [(0,)]
    await assert_sound(db)

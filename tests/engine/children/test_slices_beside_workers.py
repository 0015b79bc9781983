"""Tests of slices that run at the same time as workers and other slices: no item runs twice."""

import asyncio
from pathlib import Path

import pytest

from engine.children.scenes import Start, begin, finish_in_slices, in_hand, kick, ready, some_done
from support import Workers, add_job, assert_sound, closed, fates, job_of
from tidemill.core.errors import Busy
from tidemill.store.database import Database

# Writes a line for every run of an item.
LEDGER = """
    ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @mill.handler("test", concurrency=10)
    async def run(item):
        await asyncio.sleep(0.01)
        os.write(ledger, b"%d\\n" % item.input["n"])
"""


def finished(folder: Path) -> list[int]:
    return sorted(int(line) for line in (folder / "ledger").read_text().split())


async def test_slices_and_worker_share_job_without_running_items_twice(
    start: Start, workers: Workers, db: Database, tmp_path: Path
) -> None:
    worker = await start(LEDGER)
    await ready(worker)
    workers.start()
    job_id = await add_job(db, 3_000, batch_size=100)
    await some_done(db, job_id)
    slices = [await kick(worker, job_id, 0.3) for _ in range(4)]
    mine = sum(each.settled for each in slices)
    job = await closed(db, job_id)
    assert 0 < mine < 3_000, "both have processed items"
    assert job.counts.done == 3_000
    assert finished(tmp_path) == list(range(3_000))
    assert await fates(db, job_id) == {("done", None, 1): 3_000}
    await assert_sound(db)


async def test_concurrent_slices_share_job_without_running_items_twice(
    start: Start, db: Database, tmp_path: Path
) -> None:
    worker = await start(LEDGER, processes=2)
    job_id = await add_job(db, 2_000)
    together = await asyncio.gather(kick(worker, job_id, 1.0), kick(worker, job_id, 1.0))
    assert all(each.settled for each in together)
    rest = await finish_in_slices(worker, job_id, 5.0)
    assert sum(each.settled for each in (*together, *rest)) == 2_000
    assert finished(tmp_path) == list(range(2_000))
    await assert_sound(db)


async def test_slice_claims_no_items_of_other_jobs(start: Start, db: Database) -> None:
    worker = await start(LEDGER)
    urgent, wanted = await add_job(db, 50, priority=100), await add_job(db, 50)
    await finish_in_slices(worker, wanted, 10.0)
    assert (await job_of(db, urgent)).counts.pending == 50


async def test_slice_without_free_child_raises_busy_until_child_is_free(start: Start, db: Database) -> None:
    worker = await start(LEDGER)
    job_id = await add_job(db, 100_000)
    long = begin(worker, job_id, 60.0)
    await in_hand(db, job_id)
    with pytest.raises(Busy):
        await worker.kickoff(job_id, "test", 1.0)
    long.cancel()
    assert (await kick(worker, job_id, 0.3)).settled

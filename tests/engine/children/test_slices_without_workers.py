"""Tests that slices without a worker finish a job, from inline inputs or a file, with every handler mode."""

import pytest

from engine.children.scenes import NAP, Start, add_file, finish_in_slices, kick
from support import add_job, assert_sound, fates, job_of, rows
from tidemill.config import Settings
from tidemill.core.status import JobStatus
from tidemill.store.database import Database
from tidemill.testing.drain import make_batches_due

SHAPES = {
    "thread": """
        @mill.handler("test", concurrency=5)
        def run(item):
            time.sleep(0.01)
    """,
    "batch": """
        @mill.batch_handler("test")
        async def run(items):
            await asyncio.sleep(0.005 * len(items))
    """,
    "batch in a thread": """
        @mill.batch_handler("test")
        def run(items):
            time.sleep(0.005 * len(items))
    """,
    "transaction": """
        @mill.batch_handler("test", sparse=True)
        async def run(items, conn):
            await conn.execute("SELECT pg_sleep(%s)", [0.005 * len(items)])
    """,
}


async def test_slices_complete_inline_job(start: Start, db: Database) -> None:
    worker = await start(NAP)
    job_id = await add_job(db, 800)
    slices = await finish_in_slices(worker, job_id, 0.5)
    assert sum(each.settled > 0 for each in slices) > 2, "every slice makes progress"
    assert sum(each.settled for each in slices) == 800
    assert (await job_of(db, job_id)).status is JobStatus.COMPLETED
    assert await fates(db, job_id) == {("done", None, 1): 800}
    await assert_sound(db)


async def test_slices_ingest_file_step_by_step_while_processing_items(
    start: Start, db: Database, settings: Settings
) -> None:
    worker = await start(NAP, ingest_max_rows=64)
    job_id = await add_file(db, settings, 10_000)
    slices, read = [], [0]
    while not (job := await job_of(db, job_id)).ingest_complete:
        slices.append(await kick(worker, job_id, 0.15))
        read.append((await job_of(db, job_id)).counts.total)
    await assert_sound(db)
    assert len(set(read)) > 2
    assert read == sorted(read)
    assert job.counts.total == 10_000
    assert sum(each.settled for each in slices) == job.counts.done > 0
    assert slices[0].due_in == 0, "the source is not at its end"


async def test_slices_complete_file_job(start: Start, db: Database, settings: Settings) -> None:
    worker = await start(
        """
        @mill.handler("test")
        async def run(item):
            return item.input["n"]
    """,
        ingest_min_rows=1_000,
    )
    job_id = await add_file(db, settings, 20_000)
    slices = await finish_in_slices(worker, job_id, 0.05)  # a fast machine needs 0.25 s
    assert len(slices) > 1
    assert sum(each.settled for each in slices) == 20_000
    wrong = "SELECT count(*) FROM tidemill.outcome WHERE job_id = %s AND result::text::bigint <> seq"
    assert await rows(db, wrong, job_id) == [(0,)]
    assert (await job_of(db, job_id)).status is JobStatus.COMPLETED
    await assert_sound(db)


async def test_slice_completes_job_of_empty_file(start: Start, db: Database, settings: Settings) -> None:
    worker = await start(NAP)
    job_id = await add_file(db, settings, 0)
    (only,) = await finish_in_slices(worker, job_id, 5.0)
    assert (only.settled, only.next_due_at, only.due_in) == (0, None, None)
    assert (await job_of(db, job_id)).status is JobStatus.COMPLETED


@pytest.mark.parametrize("shape", list(SHAPES))
async def test_slices_shorter_than_job_complete_it_for_every_handler_type(
    shape: str, start: Start, db: Database
) -> None:
    worker = await start(SHAPES[shape])
    job_id = await add_job(db, 300, sparse=shape == "transaction")
    slices = await finish_in_slices(worker, job_id, 0.4)
    assert len(slices) > 1
    assert not any(each.child_died for each in slices)
    assert sum(each.settled for each in slices) == (await job_of(db, job_id)).counts.done == 300
    await assert_sound(db)


async def test_slice_without_due_items_ends_early_and_reports_next_due_time(start: Start, db: Database) -> None:
    worker = await start("""
        @mill.handler("test")
        async def run(item):
            if item.attempt == 1:
                raise Retry(after=3600)
    """)
    job_id = await add_job(db, 20)
    first = await kick(worker, job_id, 30.0)
    assert (first.settled, first.retried, first.is_drained) == (0, 20, False)
    assert first.seconds < 10
    assert first.next_due_at is not None
    assert 3500 < (first.due_in or 0) < 4600
    again = await kick(worker, job_id, 30.0)
    assert (again.settled, again.retried, again.is_drained) == (0, 0, False)
    assert again.seconds < 10
    await db.run(make_batches_due)
    last = await kick(worker, job_id, 30.0)
    assert (last.settled, last.is_drained, last.next_due_at) == (20, True, None)
    assert await fates(db, job_id) == {("done", None, 2): 20}
    await assert_sound(db)


async def test_slice_counts_failed_and_retried_items(start: Start, db: Database) -> None:
    worker = await start("""
        @mill.handler("test")
        async def run(item):
            if item.input["n"] < 3:
                raise Fail("no")

        @mill.batch_handler("whole")
        async def whole(items):
            return [Fail("no") if item.input["n"] < 3 else Retry(after=3600) for item in items]
    """)
    each = await kick(worker, await add_job(db, 10), 10.0)
    assert (each.settled, each.failed, each.retried) == (10, 3, 0)
    whole = await kick(worker, await add_job(db, 10, "whole"), 10.0, "whole")
    assert (whole.settled, whole.failed, whole.retried) == (3, 3, 7)
    await assert_sound(db)

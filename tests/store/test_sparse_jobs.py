"""Tests of sparse jobs: done items have no outcome row, but are counted and listed."""

from store.scenes import send_round, status_of
from support import DONE, FAILED, RETRY, add_job, assert_sound, close_job_as, job_of, rows, settle, take, verdict
from tidemill.core.job import Counts
from tidemill.core.status import JobStatus
from tidemill.jobs import job_control
from tidemill.store.database import Database
from tidemill.store.outcome_flush import FlushResult, flush_outcomes


async def test_sparse_job_writes_outcome_rows_only_for_failures(db: Database) -> None:
    job_id = await add_job(db, 100, sparse=True)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq, FAILED if seq < 3 else DONE) for seq in range(100)])
    assert await rows(db, "SELECT count(*) FROM tidemill.outcome") == [(3,)]
    assert (await job_of(db, job_id)).counts == Counts(total=100, done=97, failed=3)
    assert [await status_of(db, job_id, seq) for seq in (0, 3)] == ["failed", "done"]
    await assert_sound(db)


async def test_done_items_of_sparse_flush_are_counted_once(db: Database) -> None:
    job_id = await add_job(db, 10, sparse=True)
    lease = await take(db, job_id)
    assert await db.run(flush_outcomes, lease, [verdict(0, FAILED)], lease_s=30.0, sparse_done=9) is FlushResult.APPLIED
    assert (await job_of(db, job_id)).counts == Counts(total=10, done=9, failed=1)
    await assert_sound(db)


async def test_sparse_job_shows_done_for_item_that_succeeds_on_retry(db: Database) -> None:
    job_id = await add_job(db, 10, sparse=True)
    said = [verdict(seq, RETRY, delay=0) if seq == 5 else verdict(seq) for seq in range(10)]
    await settle(db, await take(db, job_id), said)
    assert await status_of(db, job_id, 5) == "retry_wait"
    await settle(db, await take(db, job_id), [verdict(5, attempts=2)])
    assert await status_of(db, job_id, 5) == "done"
    assert await db.run(close_job_as, job_id) is JobStatus.COMPLETED
    assert (await job_of(db, job_id)).counts == Counts(total=10, done=10)
    await assert_sound(db)


async def test_sparse_job_shows_done_for_item_that_succeeds_on_reprocess(db: Database) -> None:
    job_id = await add_job(db, 10, sparse=True)
    said = [verdict(seq, FAILED if seq in (2, 3) else DONE) for seq in range(10)]
    await settle(db, await take(db, job_id), said)
    assert await send_round(db, job_id) == 2
    again = await take(db, job_id)
    await settle(db, again, [verdict(2), verdict(3, FAILED)])
    assert [await status_of(db, job_id, seq) for seq in (2, 3)] == ["done", "failed"]
    assert (await job_of(db, job_id)).counts == Counts(total=10, done=9, failed=1)
    await assert_sound(db)


async def test_sparse_job_distinguishes_cancelled_from_done_items(db: Database) -> None:
    job_id = await add_job(db, 30, batch_size=10, sparse=True)
    await settle(db, await take(db, job_id))
    running = await take(db, job_id)
    await job_control.cancel_job(db, job_id)
    assert [await status_of(db, job_id, seq) for seq in (0, 10, 20)] == ["done", "processing", "cancelled"]
    await settle(db, running)
    assert await status_of(db, job_id, 10) == "done"
    assert await rows(db, "SELECT count(*) FROM tidemill.outcome") == [(0,)]
    await assert_sound(db)
